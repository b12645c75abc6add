//! The user of a client is asked for a user name and a password.

use crate::openvpn::login::{Credentials, Prompt, Question};
use crate::rights::Rights;

/// The question that the user is asked.
#[derive(Default)]
pub(super) struct Asking {
    /// Asks the user.
    prompt: Option<Prompt>,
    /// The number of the last question.
    number: u64,
    /// That question, until it is answered.
    question: Option<Question>,
}

/// An answer, with the number of its question, or why there is none.
pub(super) type Answered = (u64, Result<Credentials, String>);

impl Asking {
    pub(super) fn new(prompt: Option<Prompt>) -> Self {
        Self { prompt, ..Self::default() }
    }

    /// Asks in a thread of its own: a blocking task of the runtime would delay the end of the program. A question that waits for
    /// its answer is not asked again when sessions begin anew.
    pub(super) fn ask(&mut self, question: Question, answer: impl FnOnce(Answered) + Send + 'static) {
        if self.question.as_ref() == Some(&question) {
            return;
        }
        self.question = Some(question.clone());
        self.number += 1;
        let number = self.number;
        let Some(prompt) = self.prompt.clone() else {
            // Without a way to ask, the configuration was refused.
            return answer((number, Err("no one can be asked for the password".to_owned())));
        };
        std::thread::spawn(move || {
            Rights::None.keep();
            answer((number, prompt(&question)));
        });
    }

    /// The answer to the question that waits; `None` for an answer to an earlier one.
    pub(super) fn take(&mut self, (number, answer): Answered) -> Option<Result<Credentials, String>> {
        if number != self.number {
            return None;
        }
        self.question = None;
        Some(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_question_is_asked_once_until_it_is_answered() {
        let (begin, begun) = mpsc::channel();
        let (go, gone) = mpsc::channel();
        let gone = Mutex::new(gone);
        let prompt: Prompt = Arc::new(move |question| {
            let _ = begin.send(question.user.clone());
            let password = gone.lock().expect("no panic").recv().expect("the test answers");
            Ok(Credentials { user: question.user.clone().unwrap_or_default(), password })
        });
        let mut asking = Asking::new(Some(prompt));
        let (answer, answers) = mpsc::channel();
        let ask = |asking: &mut Asking, user: &str| {
            let answer = answer.clone();
            let question = Question { user: Some(user.to_owned()), ..Question::default() };
            asking.ask(question, move |it| _ = answer.send(it));
        };
        (0..3).for_each(|_| ask(&mut asking, "anna"));
        assert_eq!(begun.recv_timeout(LONG), Ok(Some("anna".to_owned())));
        ask(&mut asking, "berta");
        let word = |text: &str| text.to_owned().into();
        // The thread of the first question has the lock, and takes the first answer.
        go.send(word("late")).expect("it waits");
        assert!(asking.take(answers.recv_timeout(LONG).expect("an answer")).is_none());
        go.send(word("right")).expect("it waits");
        let taken = asking.take(answers.recv_timeout(LONG).expect("an answer")).expect("it is asked");
        assert_eq!(taken.expect("an answer").user, "berta");
        assert_eq!(begun.recv_timeout(LONG), Ok(Some("berta".to_owned())));
        assert!(begun.try_recv().is_err(), "no thread waits for the same answer");
        ask(&mut asking, "berta");
        assert_eq!(begun.recv_timeout(LONG), Ok(Some("berta".to_owned())), "it is asked anew");
        go.send(word("again")).expect("it waits");
    }
}
