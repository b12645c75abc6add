//! `/config-file`: the configuration in files of one folder, and in the file of the daemon.
//!
//! A key is for the configuration, not for the file system: no other file is read or written.

use super::changes::{About, apart, commit, confirm};
use super::only::{only, unknown};
use crate::app::App;
use crate::daemon::Refused;
use crate::gate::Client;
use crate::request::{Operation, Operations};
use axum::http::StatusCode;
use config::{Text, Tree, edit};
use gateway::api::model::{InForce, Saved, SecretText};
use serde_json::Value;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;

/// Where VyOS has its files: a name there stands for one in our folder.
const VYOS: &str = "/config/";
/// Where VyOS has its own file.
const VYOS_OWN: &str = "/config/config.boot";
/// Characters of a name.
const LONGEST_NAME: usize = 100;
/// Bytes of a file.
const LONGEST: u64 = 16 << 20;

pub(super) async fn carry_out(app: &App, asked: &Operations, client: &Client) -> Result<Value, Refused> {
    let operation = only(asked)?;
    match operation.op() {
        "save" => save(app, operation.file.as_deref()).await,
        "load" | "merge" => load(app, operation, asked, client).await,
        "confirm" => confirm(app).await,
        other => Err(unknown(other, "save, load, merge or confirm")),
    }
}

/// A file that may be used.
enum Place {
    /// The daemon's own.
    Own(String),
    Folder(PathBuf),
}

impl Place {
    fn path(&self) -> String {
        match self {
            Self::Own(path) => path.clone(),
            Self::Folder(path) => path.display().to_string(),
        }
    }
}

/// The file that a name stands for.
fn place(app: &App, in_force: &InForce, name: Option<&str>) -> Result<Place, Refused> {
    let Some(name) = name.filter(|name| *name != in_force.file && *name != VYOS_OWN) else {
        return Ok(Place::Own(in_force.file.clone()));
    };
    let own = app.files.join("");
    let short =
        name.strip_prefix(VYOS).or_else(|| name.strip_prefix(&*own.to_string_lossy())).unwrap_or(name);
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if !(1..=LONGEST_NAME).contains(&short.len()) || short.starts_with('.') || !short.bytes().all(is_plain) {
        let folder = app.files.display();
        return Err(Refused::bad(format!(
            "files are kept in one folder, {folder}\n  fix: name one as /config/NAME, of letters, digits, or -_."
        )));
    }
    Ok(Place::Folder(app.files.join(short)))
}

async fn save(app: &App, name: Option<&str>) -> Result<Value, Refused> {
    let _one = app.commits.lock().await;
    let in_force = app.daemon.in_force().await?;
    let place = place(app, &in_force, name)?;
    if let (Place::Own(_), Some(pending)) = (&place, &in_force.confirm) {
        let minutes = pending.seconds_left.div_ceil(60);
        let why = format!(
            "the last commit is not confirmed\n  fix: op confirm, or wait {minutes} minutes until it is undone"
        );
        return Err(Refused::new(StatusCode::BAD_REQUEST, why));
    }
    let (local, folder, path, revision) =
        (Arc::clone(&app.local), app.files.clone(), place.path(), in_force.revision);
    let (written, is_own) = (path.clone(), matches!(place, Place::Own(_)));
    let hash = apart(move || {
        if !is_own {
            let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
            made.map_err(|error| format!("{}: {error}", folder.display()))?;
        }
        local.save(&in_force, &written)
    });
    let hash = hash.await?.map_err(Refused::bad)?;
    if is_own {
        app.daemon.saved(&Saved { hash, revision }).await?;
    }
    Ok(format!("Saving configuration to '{path}'...\nDone\n").into())
}

async fn load(
    app: &App,
    operation: &Operation,
    asked: &Operations,
    client: &Client,
) -> Result<Value, Refused> {
    let text = match (&operation.string, operation.file.as_deref()) {
        (Some(text), _) => text.clone(),
        (None, Some(name)) => {
            let in_force = app.daemon.in_force().await?;
            let path = place(app, &in_force, Some(name))?.path();
            apart(move || read(&path)).await?.map_err(Refused::bad)?
        }
        (None, None) => return Err(Refused::bad("Missing required field \"file | string\"")),
    };
    let tree = apart(move || parsed(text.as_str())).await?.map_err(Refused::bad)?;
    let is_merged = operation.op() == "merge";
    let about = About { confirm_minutes: asked.confirm_minutes, comment: asked.comment.clone() };
    commit(app, client, about, move |candidate| {
        if is_merged {
            edit::merge(candidate, &tree);
        } else {
            *candidate = tree.clone();
        }
        Ok(())
    })
    .await
}

/// A text, erased when it is dropped.
fn read(path: &str) -> Result<SecretText, String> {
    let wrong = |error: &dyn std::fmt::Display| format!("{path}: {error}");
    let length = std::fs::metadata(path).map_err(|error| wrong(&error))?.len();
    if length > LONGEST {
        return Err(wrong(&format!("longer than {LONGEST} bytes")));
    }
    let text = Text::read(path.as_ref()).map_err(|error| wrong(&error))?;
    Ok(text.as_str().map_err(|error| wrong(&error))?.into())
}

fn parsed(text: &str) -> Result<Tree, String> {
    config::parse(text).map_err(|errors| {
        let listed = errors.iter().map(|error| format!("{}\n", error.in_text("configuration", text)));
        listed.collect::<String>() + "Failed to parse specified config file"
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::Local;

    struct Nothing;

    impl Local for Nothing {
        fn operate(&self, _: &[&str]) -> Result<String, String> {
            Err("nothing".to_owned())
        }

        fn save(&self, _: &InForce, _: &str) -> Result<String, String> {
            Err("nothing".to_owned())
        }
    }

    #[test]
    fn only_files_of_one_folder_and_the_own_file_are_named() {
        let (api, state) = ("/run/api.sock".into(), "/var/lib/postern".into());
        let app = App::new(&crate::Place { api, state }, Arc::new(Nothing));
        let in_force = InForce { file: "/etc/postern/postern.conf".to_owned(), ..InForce::default() };
        let path = |name: Option<&str>| place(&app, &in_force, name).map(|place| place.path()).ok();
        for own in [None, Some("/etc/postern/postern.conf"), Some("/config/config.boot")] {
            assert_eq!(path(own).as_deref(), Some("/etc/postern/postern.conf"));
        }
        for name in ["/config/a-1.boot", "a-1.boot", "/var/lib/postern/config/a-1.boot"] {
            assert_eq!(path(Some(name)).as_deref(), Some("/var/lib/postern/config/a-1.boot"), "{name}");
        }
        let long = "a".repeat(101);
        for name in [
            "",
            "/config/",
            "..",
            ".a",
            "/config/../a",
            "/config/a/b",
            "/etc/passwd",
            "a\n",
            "/config//etc/passwd",
            "ä",
            "/var/lib/postern/archive/1",
            "http://192.0.2.1/a",
            "scp://a/b",
            &long,
        ] {
            assert_eq!(path(Some(name)), None, "{name}");
        }
    }
}
