//! The parts of the program that a request uses besides the daemon.

use gateway::api::model::InForce;

/// The program, as the server sees it. Each call may wait.
pub trait Local: Send + Sync {
    /// The text of an operational command, such as `show version`; an error says why there is none.
    fn operate(&self, words: &[&str]) -> Result<String, String>;

    /// Writes the configuration in force to a file; the SHA-256 of the file, in hexadecimal.
    fn save(&self, in_force: &InForce, file: &str) -> Result<String, String>;
}
