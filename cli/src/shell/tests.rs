//! Sessions with a daemon that only keeps revisions.

use super::api::{Refusal, Router};
use super::session::{Form, Reply, Session};
use crate::Failure;
use config::Tree;
use gateway::api::model::{
    Commit, CommitError, CommitErrors, Committed, Confirmed, InForce, Revision, RevisionText, Saved,
    SecretText, Unconfirmed, Via,
};
use std::cell::RefCell;
use std::rc::Rc;

/// Revisions, the newest last, and what is noted of them.
#[derive(Default)]
struct Kept {
    revisions: Vec<String>,
    commits: Vec<Commit>,
    saved: Option<Saved>,
    file: String,
    confirm: Option<Unconfirmed>,
    refused: Vec<String>,
    /// Who made the last revision, if it was not this session.
    other: Option<String>,
    /// The daemon does not answer any more, from the next commit on.
    is_ending: bool,
    has_ended: bool,
}

#[derive(Clone, Default)]
struct Fake(Rc<RefCell<Kept>>);

impl Router for Fake {
    fn in_force(&self) -> Result<InForce, Failure> {
        let kept = self.0.borrow();
        if kept.has_ended {
            return Err("no daemon answers".into());
        }
        let text = kept.revisions.last().map_or("", String::as_str);
        Ok(InForce {
            revision: kept.revisions.len() as u64,
            file: kept.file.clone(),
            saved: kept.saved.as_ref().is_some_and(|saved| saved.revision == kept.revisions.len() as u64),
            confirm: kept.confirm.clone(),
            read_only: None,
            refused: kept.refused.clone(),
            text: SecretText::from(text),
        })
    }

    fn revisions(&self) -> Result<Vec<Revision>, Failure> {
        let number = self.0.borrow().revisions.len() as u64;
        Ok((1..=number).rev().map(|revision| Revision { revision, ..Revision::default() }).collect())
    }

    fn revision(&self, number: u64) -> Result<RevisionText, Failure> {
        let text = self.0.borrow().revisions[usize::try_from(number - 1).expect("small")].clone();
        let user = self.0.borrow().other.clone().unwrap_or_else(|| "root".to_owned());
        let revision = Revision { revision: number, user, ..Revision::default() };
        Ok(RevisionText { revision, text: SecretText::from(text.as_str()) })
    }

    fn commit(&self, commit: &Commit) -> Result<Committed, Refusal> {
        let mut kept = self.0.borrow_mut();
        let mut tree = config::parse(kept.revisions.last().map_or("", String::as_str)).expect("right");
        for line in &commit.edits {
            config::parse::execute(line.as_str(), &config::Path::default(), &mut tree).expect("whole lines");
        }
        if let Err(errors) = config::Settings::new(&tree) {
            let error = |it: &config::ConfigError| CommitError {
                path: "vpn".to_owned(),
                why: it.reason.clone(),
                fix: it.fix.clone(),
            };
            return Err(Refusal::Wrong(CommitErrors { errors: errors.iter().map(error).collect() }));
        }
        if !commit.check_only {
            kept.revisions.push(config::print::text(&tree).as_str().expect("text").to_owned());
        }
        kept.commits.push(commit.clone());
        kept.has_ended = kept.is_ending;
        let revision = kept.revisions.len() as u64;
        kept.confirm = commit.confirm_minutes.map(|minutes| Unconfirmed {
            revision,
            seconds_left: 60 * u64::from(minutes),
            back_to: revision - 1,
            failed: None,
        });
        Ok(Committed { revision, confirm: kept.confirm.clone(), ..Committed::default() })
    }

    fn confirm(&self, revision: u64) -> Result<Confirmed, Failure> {
        let open = self.0.borrow_mut().confirm.take();
        assert_eq!(open.map(|open| open.revision), Some(revision));
        Ok(Confirmed { revision })
    }

    fn saved(&self, saved: &Saved) -> Result<(), Failure> {
        self.0.borrow_mut().saved = Some(saved.clone());
        Ok(())
    }
}

const TEXT: &str = "set interfaces wireguard wg0 address 10.0.0.1/24\n\
    set interfaces wireguard wg0 private-key YAnz5TF+lXXJte14tji3zlMNftft3s+fYzyBdnGPWlM=\n";

struct Test {
    fake: Fake,
    session: Session,
}

impl Test {
    fn new() -> Self {
        let fake = Fake::default();
        fake.0.borrow_mut().revisions.push(TEXT.to_owned());
        let session = Session::begin(Box::new(fake.clone()), "root".to_owned()).expect("a session");
        Self { fake, session }
    }

    fn says(&mut self, line: &str) -> String {
        self.reply(line).map_or_else(|error| panic!("{line}: {error}"), |reply| reply.text)
    }

    fn reply(&mut self, line: &str) -> Result<Reply, Failure> {
        self.session.execute(line, Form::default())
    }

    fn refuses(&mut self, line: &str) -> String {
        let before = self.session.candidate.clone();
        let error = self.reply(line).map(|reply| reply.text).expect_err(line).to_string();
        assert_eq!(before, self.session.candidate, "{line}: the candidate is unchanged");
        error
    }

    fn candidate(&self) -> &Tree {
        &self.session.candidate
    }
}

#[test]
fn lines_at_a_level_change_the_candidate_and_commit_puts_it_in_force() {
    let mut test = Test::new();
    test.says("edit interfaces wireguard wg0");
    assert_eq!(test.session.level().to_string(), "interfaces wireguard wg0");
    test.says("set mtu 1400");
    assert_eq!(test.says("compare"), "[edit interfaces wireguard wg0]\n+mtu 1400\n");
    test.says("up");
    assert_eq!(test.session.level().to_string(), "interfaces");
    test.says("top");
    assert_eq!(test.says("commit comment 'a larger one'"), "");
    let kept = test.fake.0.borrow();
    assert_eq!(kept.commits[0].edits, [SecretText::from("set interfaces wireguard wg0 mtu 1400")]);
    assert_eq!(kept.commits[0].comment.as_deref(), Some("a larger one"));
    assert_eq!(
        (kept.commits[0].base, kept.commits[0].via, kept.commits[0].user.as_str()),
        (1, Via::Cli, "root")
    );
    drop(kept);
    assert_eq!(test.says("commit"), "No configuration changes to commit\n");
    assert!(test.says("compare").starts_with("No changes between working and active"));
}

#[test]
fn names_of_links_and_next_hops_are_those_that_were_typed() {
    let mut test = Test::new();
    for line in [
        "interfaces dummy dum0",
        "interfaces ethernet wan0 vif 7 mtu 1400",
        "interfaces bridge br0 member interface lan0",
        "protocols static route 0.0.0.0/0 next-hop 192.0.2.9",
        "nat source rule 10 exclude",
        "service dns forwarding name-server 192.0.2.9",
    ] {
        test.says(&format!("set {line}"));
    }
    let all = config::print::commands(test.candidate(), true);
    for line in [
        "dummy dum0\n",
        "wan0 vif 7 mtu 1400\n",
        "interface lan0\n",
        "next-hop 192.0.2.9\n",
        "rule 10 exclude\n",
    ] {
        assert!(all.contains(line), "{line}: {all}");
    }
    test.says("delete interfaces ethernet wan0 vif 7 mtu");
    test.says("delete interfaces bridge br0");
    assert!(test.refuses("set interfaces ethernet wan0 vif 5000").contains("from 0 to 4094"));
}

#[test]
fn errors_have_the_words_that_scripts_look_for() {
    let mut test = Test::new();
    let said = test.refuses("set interfaces bonding bond0");
    assert!(said.contains("Configuration path: [interfaces bonding"), "{said}");
    assert!(said.ends_with("Set failed") && said.contains("fix: "), "{said}");
    let said = test.refuses("set interfaces wireguard wg0 mtu 12");
    assert!(said.contains("Value validation failed") && said.ends_with("Set failed"), "{said}");
    let said = test.refuses("delete interfaces wireguard wg7");
    assert!(said.contains("Nothing to delete (the specified node does not exist)"), "{said}");
    assert!(said.ends_with("Delete failed"), "{said}");
    let said = test.refuses("set vpn ipsec site-to-site peer a authentication OpenSesame");
    assert!(!said.contains("Sesame"), "{said}");
    assert!(test.refuses("sett a").contains("Invalid command: [sett]\n  fix: did you mean set?"));
    assert!(test.refuses("co").contains("Ambiguous command"));
    assert!(
        test.refuses("edit interfaces wireguard wg0 mtu").contains("cannot be issued at the \"mtu\" level")
    );
    assert!(test.refuses("show frob").contains("Configuration path: [frob] is not valid"));
    assert!(test.refuses("comment interfaces wireguard a").contains("fix: "));
    test.says("set vpn ipsec site-to-site peer a ike-group HOME");
    let said = test.refuses("commit");
    assert!(said.starts_with("[vpn]\n  ") && said.ends_with("Commit failed"), "{said}");
    assert!(test.refuses("commit check").ends_with("Commit failed"));
    assert_eq!(test.fake.0.borrow().revisions.len(), 1, "what is in force is unchanged");
}

#[test]
fn a_changed_session_is_left_only_by_force() {
    let mut test = Test::new();
    test.says("set interfaces wireguard wg0 mtu 1400");
    test.says("edit interfaces wireguard wg0");
    test.says("exit");
    assert_eq!(test.session.level().to_string(), "", "from a level to the highest one");
    let said = test.refuses("exit");
    assert!(said.starts_with("Cannot exit: configuration modified.\nUse 'exit discard'"), "{said}");
    assert_eq!(test.says("discard"), "Changes have been discarded\n");
    assert_eq!(test.says("discard"), "No changes have been discarded\n");
    let left = test.reply("exit").expect("unchanged");
    assert!(left.is_end && left.text.contains("Warning: configuration changes have not been saved."));
    test.says("set interfaces wireguard wg0 mtu 1400");
    assert!(test.reply("exit discard").expect("by force").is_end);
}

#[test]
fn a_revision_comes_back_and_is_compared() {
    let mut test = Test::new();
    test.says("set interfaces wireguard wg0 mtu 1400");
    test.says("commit");
    let said = test.says("rollback 1");
    assert!(said.starts_with("[edit interfaces wireguard wg0]\n-mtu 1400\nLoaded revision 1:"), "{said}");
    assert_eq!(test.says("compare 0 1"), "[edit interfaces wireguard wg0]\n+mtu 1400\n");
    assert_eq!(test.says("compare 1 0"), test.says("compare 0 1"));
    assert_eq!(test.says("compare 0"), "[edit interfaces wireguard wg0]\n-mtu 1400\n");
    test.says("commit");
    assert_eq!(test.fake.0.borrow().revisions.last().map(String::as_str), Some(TEXT));
    assert!(test.refuses("rollback 9").contains("from 0, the newest, to 2"));
    assert!(test.refuses("rollback x").contains("not the number"));
}

#[test]
fn a_branch_is_renamed_and_copied() {
    let mut test = Test::new();
    test.says("copy interfaces wireguard wg0 to wireguard wg1");
    test.says("edit interfaces");
    test.says("rename wireguard wg0 to wireguard wg5");
    let names: Vec<&str> =
        test.candidate().at(&["interfaces", "wireguard"]).expect("set").children().map(|it| it.0).collect();
    assert_eq!(names, ["wg1", "wg5"]);
    assert!(test.refuses("copy wireguard").contains("fix: copy"));
}

#[test]
fn secrets_are_hidden_unless_asked_for() {
    let mut test = Test::new();
    assert!(!test.says("show").contains("YAnz5"));
    assert_eq!(test.says("show interfaces wireguard wg0"), " address 10.0.0.1/24\n private-key ********\n");
    assert!(test.says("show --secrets").contains("private-key YAnz5"));
    let json = test.session.execute("show", Form::Json).expect("shown").text;
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let wg0 = &json["interfaces"]["wireguard"]["wg0"];
    assert_eq!((&wg0["address"][0], &wg0["private-key"]), (&"10.0.0.1/24".into(), &"********".into()));
    let lines =
        test.session.execute("show interfaces wireguard wg0 address", Form::Commands).expect("shown").text;
    assert_eq!(lines, "set interfaces wireguard wg0 address 10.0.0.1/24\n");
    test.says(
        "set interfaces wireguard wg0 peer a preshared-key xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=",
    );
    for line in ["compare", "show"] {
        assert!(!test.says(line).contains("xTIBA"));
    }
}

#[test]
fn a_comment_is_kept_shown_and_removed() {
    let folder = tempfile::tempdir().expect("a folder");
    let boot = folder.path().join("a.boot").to_string_lossy().into_owned();
    let mut test = Test::new();
    test.says("edit interfaces wireguard wg0");
    test.says("comment address 'of the tunnel'");
    test.says("top");
    test.says("comment interfaces wireguard wg0 'to the office'");
    assert_eq!(
        test.says("compare"),
        "[edit interfaces wireguard wg0]\n+/* to the office */\n+/* of the tunnel */\n>address 10.0.0.1/24\n"
    );
    let lines = test.session.execute("compare", Form::Commands).expect("shown").text;
    assert!(lines.contains("comment interfaces wireguard wg0 'to the office'\n"), "{lines}");
    test.says("commit");
    assert!(test.says("compare").starts_with("No changes"));
    assert!(
        test.says("show interfaces")
            .starts_with(" /* to the office */\n wireguard wg0 {\n     /* of the tunnel */\n     address ")
    );
    test.says(&format!("save {boot}"));
    assert!(
        std::fs::read_to_string(&boot)
            .expect("written")
            .contains("    /* to the office */\n    wireguard wg0 {\n")
    );
    test.says("rename interfaces wireguard wg0 to wg1");
    assert!(test.says("compare").contains("+/* to the office */\n+wireguard wg1 {\n"));
    test.says("discard");
    test.says("comment interfaces wireguard wg0 ''");
    assert_eq!(test.says("compare"), "[edit interfaces wireguard wg0]\n-/* to the office */\n");
    test.says(&format!("load {boot}"));
    assert!(test.says("compare").starts_with("No changes"));
    assert!(test.refuses("comment interfaces wireguard wg7 x").ends_with("Comment failed"));
}

#[test]
fn an_ambiguous_word_names_its_candidates() {
    let mut test = Test::new();
    let said = test.refuses("set vpn ipsec lo level 1");
    assert!(
        said.contains("ambiguous word \"lo\"") && said.contains("fix: write one of log, logging"),
        "{said}"
    );
    assert!(test.refuses("edit vpn ipsec lo").ends_with("fix: write one of log, logging"));
    assert!(
        test.refuses("co").ends_with(
            "fix: write one of comment, commit, commit-confirm, compare, configure, confirm, copy"
        )
    );
}

#[test]
fn files_are_saved_loaded_and_merged() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("postern.conf").to_string_lossy().into_owned();
    let mut test = Test::new();
    test.fake.0.borrow_mut().file.clone_from(&path);
    test.session.file.clone_from(&path);
    assert_eq!(test.says("save"), format!("Saving configuration to '{path}'...\nDone\n"));
    assert_eq!(std::fs::read_to_string(&path).expect("written"), TEXT);
    test.fake.0.borrow_mut().refused.push("interfaces wireguard wg0".to_owned());
    assert!(test.says("save").starts_with("Warning: interfaces wireguard wg0: saved, but not in force, "));
    test.fake.0.borrow_mut().refused.clear();
    let hash = test.fake.0.borrow().saved.as_ref().map(|saved| saved.hash.clone());
    assert_eq!(hash.map(|hash| hash.len()), Some(64));
    let boot = folder.path().join("a.boot").to_string_lossy().into_owned();
    test.says(&format!("save {boot}"));
    assert!(std::fs::read_to_string(&boot).expect("written").starts_with("interfaces {\n"));
    std::fs::write(&path, "set interfaces wireguard wg0 mtu 1400\n").expect("ours");
    assert!(test.says(&format!("merge {path}")).contains("Load complete."));
    assert_eq!(test.says("compare"), "[edit interfaces wireguard wg0]\n+mtu 1400\n");
    assert!(test.says("load").contains(&path));
    assert!(test.says("compare").contains("-address 10.0.0.1/24"));
    test.says(&format!("load {boot}"));
    assert!(test.says("compare").starts_with("No changes"));
    std::fs::write(&path, "set interfaces wireguard wg0 mtu 1\nset x\n").expect("ours");
    let said = test.refuses("load");
    assert!(
        said.contains(":1:34: ") && said.contains(":2:5: ") && said.ends_with("specified config file"),
        "{said}"
    );
    let open = Unconfirmed { revision: 1, seconds_left: 90, ..Unconfirmed::default() };
    test.fake.0.borrow_mut().confirm = Some(open);
    assert!(test.refuses("save").contains("type confirm, or wait 2 minutes"));
    test.says("confirm");
    test.says("save");
    assert!(test.refuses(&format!("save {}/no/such", folder.path().display())).contains("fix: mkdir -p "));
}

#[test]
fn a_commit_may_have_to_be_confirmed() {
    let mut test = Test::new();
    test.says("set interfaces wireguard wg0 mtu 1400");
    assert!(test.says("commit confirm 5").contains("undone in 5 minutes unless you type: confirm"));
    assert_eq!(test.fake.0.borrow().commits[0].confirm_minutes, Some(5));
    test.says("set interfaces wireguard wg0 mtu 1300");
    assert_eq!(test.says("commit check"), "The candidate is valid\n");
    assert_eq!(test.fake.0.borrow().revisions.len(), 2);
    assert!(test.refuses("commit-confirm 0").contains("from 1 to 1440"));
    test.says("commit-confirm 7");
    assert_eq!(test.fake.0.borrow().commits[2].confirm_minutes, Some(7));
    for (line, mtu) in [("commit-confirm", 1310), ("commit confirm comment 'a try'", 1320)] {
        test.says(&format!("set interfaces wireguard wg0 mtu {mtu}"));
        assert!(test.says(line).contains("undone in 10 minutes"), "{line}");
    }
    assert_eq!(test.fake.0.borrow().commits[4].comment.as_deref(), Some("a try"));
}

#[test]
fn a_commit_of_another_session_is_shown_before_it_is_confirmed() {
    let mut test = Test::new();
    assert!(test.refuses("confirm").contains("no commit waits"));
    let other = |test: &Test, user: &str, mtu: u32| {
        let mut kept = test.fake.0.borrow_mut();
        kept.revisions.push(format!("{TEXT}set interfaces wireguard wg0 mtu {mtu}\n"));
        kept.other = Some(user.to_owned());
        let revision = kept.revisions.len() as u64;
        kept.confirm = Some(Unconfirmed { revision, seconds_left: 90, back_to: 1, failed: None });
    };
    other(&test, "alice", 1400);
    let said = test.refuses("confirm");
    assert!(said.starts_with("Committed by alice, ") && said.contains("\n+mtu 1400\n"), "{said}");
    assert!(said.ends_with("type confirm again"), "{said}");
    // Another one meanwhile is shown, too.
    other(&test, "alice", 1300);
    assert!(test.refuses("confirm").contains("\n+mtu 1300\n"));
    assert_eq!(test.says("confirm"), "The last change stays in force\n");
    // One's own of another session is shown, and confirmed at once.
    other(&test, "root", 1200);
    let said = test.says("confirm");
    assert!(said.contains("\n+mtu 1200\n") && said.ends_with("The last change stays in force\n"), "{said}");
    // But not if this session has committed another one, which was undone.
    test.says("set interfaces wireguard wg0 mtu 1250");
    test.says("commit-confirm 5");
    other(&test, "root", 1210);
    assert!(test.refuses("confirm").contains("\n+mtu 1210\n"));
}

#[test]
fn a_commit_counts_although_the_daemon_ends_after_it() {
    let mut test = Test::new();
    test.fake.0.borrow_mut().is_ending = true;
    test.says("set interfaces wireguard wg0 mtu 1400");
    let said = test.says("commit");
    assert!(said.starts_with("Warning: the change is in force, and the daemon does not answer"), "{said}");
    assert!(!test.session.is_changed());
    assert_eq!(test.says("commit"), "No configuration changes to commit\n");
}

#[test]
fn a_session_is_kept_in_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("session");
    let mut test = Test::new();
    test.says("edit interfaces wireguard wg0");
    test.says("set mtu 1400");
    test.session.store(&file).expect("written");
    use std::os::unix::fs::MetadataExt;
    assert_eq!(std::fs::metadata(&file).expect("there").mode() & 0o777, 0o600);
    let again = Session::restore(Box::new(test.fake.clone()), "root".to_owned(), &file).expect("read");
    assert_eq!((again.level(), &again.candidate), (test.session.level(), &test.session.candidate));
    assert!(again.is_changed());
    std::fs::write(&file, "").expect("ours");
    assert!(Session::restore(Box::new(test.fake.clone()), String::new(), &file).is_err());
}
