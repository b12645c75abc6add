//! `system task-scheduler`, typed.

use super::super::Reader;
use crate::schema::{self, Times};
use crate::tree::Tree;
use std::collections::BTreeMap;

/// What is run, by the names of the tasks.
pub type Tasks = BTreeMap<String, Task>;

/// A program, and when it is run.
#[derive(Clone, PartialEq, Eq)]
pub struct Task {
    /// The program.
    pub path: String,
    /// What it is given.
    pub arguments: Vec<String>,
    /// When.
    pub times: Times,
}

impl Reader {
    pub(super) fn tasks(&mut self, tree: &Tree) -> Tasks {
        let mut tasks = Tasks::new();
        for (name, task) in tree.at(&["task"]).into_iter().flat_map(Tree::children) {
            let set = format!("system task-scheduler task {name}");
            let arguments = task.at(&["executable"]).and_then(|it| it.value("arguments"));
            let path = task.at(&["executable"]).and_then(|it| it.value("path"));
            let times = match (task.value("interval"), task.value("crontab-spec")) {
                (Some(_), Some(_)) => {
                    let reason = format!("{set} has interval and crontab-spec, and only one counts");
                    self.error(task.location_of("crontab-spec"), reason, format!("delete {set} interval"));
                    continue;
                }
                (Some(interval), None) => Times::every(interval),
                (None, Some(spec)) => Times::parse(spec),
                (None, None) => {
                    self.warn(format!(
                        "{set} does not say when it is run, and is not: set {set} interval 1d"
                    ));
                    continue;
                }
            };
            let Some(path) = path else {
                let fix = format!("set {set} executable path /config/scripts/NAME");
                self.warn(format!("{set} does not say what is run: {fix}"));
                continue;
            };
            let arguments = arguments.and_then(schema::words).unwrap_or_default();
            let times = times.expect("the schema has checked it");
            tasks.insert(name.to_owned(), Task { path: path.to_owned(), arguments, times });
        }
        tasks
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::read;

    const TASK: &str = "set system task-scheduler task a";

    #[test]
    fn a_task_has_a_program_and_a_time() {
        let text = format!(
            "{TASK} executable path /config/scripts/a.sh\n{TASK} executable arguments \"-x 'a b'\"\n\
             {TASK} crontab-spec '0 4 * * mon'"
        );
        let machine = read(&text).expect("right");
        let task = &machine.tasks["a"];
        assert_eq!(
            (task.path.as_str(), &*task.arguments),
            ("/config/scripts/a.sh", &["-x".to_owned(), "a b".to_owned()][..])
        );
        assert_eq!(task.times.crontab, "0 4 * * mon");
    }

    #[test]
    fn a_task_with_both_times_is_refused() {
        let text = format!("{TASK} executable path /a\n{TASK} interval 1d\n{TASK} crontab-spec @daily");
        let errors = read(&text).expect_err("wrong");
        assert_eq!(errors[0].fix.as_deref(), Some("delete system task-scheduler task a interval"));
    }

    /// So that its lines can be committed one after the other.
    #[test]
    fn a_task_that_is_not_complete_is_not_run_and_the_line_to_add_is_said() {
        for (line, said) in [
            ("interval 1d", "set system task-scheduler task a executable path"),
            ("executable path /a", "set system task-scheduler task a interval 1d"),
        ] {
            let tree = crate::parse(&format!("{TASK} {line}")).expect("right");
            let (settings, warnings) = crate::Settings::new(&tree).expect("right");
            assert!(settings.machine.tasks.is_empty() && !settings.machine.is_empty());
            assert!(warnings.len() == 1 && warnings[0].contains(said), "{warnings:?}");
        }
    }
}
