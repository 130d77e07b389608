//! The query of gates and terminals: an HTTP query string in, a JSON answer out.
//!
//! ```text
//! cardid=5186100181001473&cardnet=4401&cmdtype=blacklistquery&serialno=1011&tbtype=0&version=201708031
//! {"cmdtype":"blacklistqueryresult","darkstatus0":"1","darktype0":"7","darkver0":"1970-01-01 08:00:00","errorcode":"0",
//!  "recordcnt":"1","serialno":"1011","status":"1","type":"7","version":"201708031"}
//! ```
//!
//! To a gate, `recordcnt` 0 means: let the card pass. So whatever is wrong, with the query or with the list, is an error
//! with a code of its own, and never an answer.

use std::borrow::Cow;

use card_table::{Id, Table};
use percent_encoding::percent_decode;
use serde::Serialize;

/// The one command there is.
const COMMAND: &str = "blacklistquery";

/// How long the parameters may be that are echoed.
const MAX_ECHO_BYTES: usize = 64;

/// The list that is asked.
pub enum List<'a> {
    Missing,
    NotReady,
    Ready { table: &'a Table, darkver: String },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Listed,
    NotListed,
    Failed,
}

/// Why there is no answer.
#[derive(Debug, PartialEq, Eq)]
struct Problem {
    code: &'static str,
    message: String,
}

impl Problem {
    fn parameter(message: impl Into<String>) -> Problem {
        Problem { code: "1", message: message.into() }
    }

    fn command() -> Problem {
        Problem { code: "2", message: format!("cmdtype must be {COMMAND}") }
    }

    fn list(message: &str) -> Problem {
        Problem { code: "3", message: message.into() }
    }
}

/// The parameters that mean something.
#[derive(Default)]
struct Parameters<'a> {
    cardid: Option<Cow<'a, str>>,
    cardnet: Option<Cow<'a, str>>,
    cmdtype: Option<Cow<'a, str>>,
    serialno: Option<Cow<'a, str>>,
    tbtype: Option<Cow<'a, str>>,
    version: Option<Cow<'a, str>>,
}

/// In the order in which they have always been sent.
#[derive(Serialize)]
struct Answer<'a> {
    cmdtype: &'static str,
    #[serde(flatten)]
    dark: Option<Dark<'a>>,
    errorcode: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    errormsg: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    recordcnt: Option<&'static str>,
    serialno: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'a str>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    type_: Option<&'a str>,
    version: &'a str,
}

#[derive(Serialize)]
struct Dark<'a> {
    darkstatus0: &'a str,
    darktype0: &'a str,
    darkver0: &'a str,
}

/// The answer to a query string.
pub fn answer(query: &[u8], list: &List) -> (Outcome, Vec<u8>) {
    let mut parameters = Parameters::default();
    let parsed = parameters.parse(query);
    let echo = |parameter: &Option<Cow<str>>| parameter.as_deref().unwrap_or_default().to_owned();
    let (serialno, version) = (echo(&parameters.serialno), echo(&parameters.version));
    let mut answer = Answer {
        cmdtype: "blacklistqueryresult",
        dark: None,
        errorcode: "0",
        errormsg: None,
        recordcnt: None,
        serialno: &serialno,
        status: None,
        type_: None,
        version: &version,
    };
    match parsed.and_then(|()| parameters.card()).and_then(|card| look_up(&card, list)) {
        Ok(None) => {
            answer.recordcnt = Some("0");
            (Outcome::NotListed, json(&answer))
        }
        Ok(Some(Listed { type_, status, darkver })) => {
            answer.recordcnt = Some("1");
            answer.dark = Some(Dark { darkstatus0: &status, darktype0: &type_, darkver0: darkver });
            answer.status = Some(&status);
            answer.type_ = Some(&type_);
            (Outcome::Listed, json(&answer))
        }
        Err(Problem { code, message }) => {
            answer.errorcode = code;
            answer.errormsg = Some(&message);
            (Outcome::Failed, json(&answer))
        }
    }
}

fn json(answer: &Answer) -> Vec<u8> {
    serde_json::to_vec(answer).expect("texts can always be written as JSON")
}

impl<'a> Parameters<'a> {
    /// Takes the query apart. The first problem is returned, but what can be read beyond it is.
    fn parse(&mut self, query: &'a [u8]) -> Result<(), Problem> {
        let pairs = query.split(|&byte| byte == b'&').filter(|pair| !pair.is_empty());
        let problems: Vec<_> = pairs.filter_map(|pair| self.take(pair).err()).collect();
        problems.into_iter().next().map_or(Ok(()), Err)
    }

    fn take(&mut self, pair: &'a [u8]) -> Result<(), Problem> {
        let mut parts = pair.splitn(2, |&byte| byte == b'=');
        let name = decoded(parts.next().unwrap_or_default(), "a parameter's name")?;
        let value = parts.next().unwrap_or_default();
        let (parameter, is_echoed) = match &*name {
            "cardid" => (&mut self.cardid, false),
            "cardnet" => (&mut self.cardnet, false),
            "cmdtype" => (&mut self.cmdtype, false),
            "tbtype" => (&mut self.tbtype, false),
            "serialno" => (&mut self.serialno, true),
            "version" => (&mut self.version, true),
            _ => return decoded(value, "a parameter").map(drop),
        };
        let value = decoded(value, &name)?;
        if parameter.is_some() {
            return Err(Problem::parameter(format!("{name} is given twice")));
        }
        if is_echoed && value.len() > MAX_ECHO_BYTES {
            return Err(Problem::parameter(format!("{name} has more than {MAX_ECHO_BYTES} bytes")));
        }
        *parameter = Some(value);
        Ok(())
    }

    /// The card that is asked about.
    fn card(&self) -> Result<String, Problem> {
        match self.cmdtype.as_deref().unwrap_or_default() {
            COMMAND => {}
            "" => return Err(Problem::parameter("cmdtype is missing")),
            _ => return Err(Problem::command()),
        }
        let cardid = self.cardid.as_deref().unwrap_or_default();
        if cardid.is_empty() {
            return Err(Problem::parameter("cardid is missing"));
        }
        Ok([self.cardnet.as_deref().unwrap_or_default(), cardid].concat())
    }
}

/// A name or a value, decoded as HTML forms are encoded.
fn decoded<'a>(bytes: &'a [u8], what: &str) -> Result<Cow<'a, str>, Problem> {
    let problem = |reason: &str| Problem::parameter(format!("{what} {reason}"));
    let mut escapes = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'%').map(|(at, _)| at);
    if !escapes.all(|at| bytes.get(at + 1..at + 3).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit))) {
        return Err(problem("has a bad percent-encoding"));
    }
    let decoded: Cow<[u8]> = if bytes.contains(&b'+') {
        let spaced: Vec<u8> = bytes.iter().map(|&byte| if byte == b'+' { b' ' } else { byte }).collect();
        Cow::Owned(percent_decode(&spaced).collect())
    } else {
        percent_decode(bytes).into()
    };
    let text = match decoded {
        Cow::Borrowed(bytes) => str::from_utf8(bytes).map(Cow::Borrowed).ok(),
        Cow::Owned(bytes) => String::from_utf8(bytes).map(Cow::Owned).ok(),
    };
    let text = text.ok_or_else(|| problem("is not UTF-8"))?;
    if text.chars().any(char::is_control) {
        return Err(problem("has control characters"));
    }
    Ok(text)
}

/// A card that is on the list.
struct Listed<'a> {
    type_: String,
    status: String,
    darkver: &'a str,
}

fn look_up<'a>(card: &str, list: &'a List) -> Result<Option<Listed<'a>>, Problem> {
    let id = Id::parse(card.as_bytes()).map_err(|error| Problem::parameter(error.to_string()))?;
    let (table, darkver) = match list {
        List::Missing => return Err(Problem::list("there is no such list")),
        List::NotReady => return Err(Problem::list("the list is not loaded yet")),
        List::Ready { table, darkver } => (table, darkver),
    };
    let place = |name: &str| table.schema().fields().iter().position(|field| field.name == name);
    let Some((type_, status)) = place("type").zip(place("status")) else {
        return Err(Problem::list("the list has no type and status"));
    };
    Ok(table.get(&id).map(|symbol| {
        let values = table.schema().unpack(symbol);
        Listed { type_: values[type_].to_string(), status: values[status].to_string(), darkver }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use card_table::{Field, Schema};

    const REST: &str = "cmdtype=blacklistquery&serialno=1011&tbtype=0&version=201708031";

    fn table() -> Table {
        let mut table = Table::new(Schema::default());
        for (card, values) in [("44015186100181001473", [7, 1]), ("été & co", [0, 2])] {
            let symbol = table.schema().pack(&values).unwrap();
            table.insert(&Id::parse(card.as_bytes()).unwrap(), symbol);
        }
        table
    }

    fn ask(query: impl AsRef<[u8]>) -> String {
        ask_list(query, &List::Ready { table: &table(), darkver: "1970-01-01 08:00:00".into() })
    }

    fn ask_list(query: impl AsRef<[u8]>, list: &List) -> String {
        String::from_utf8(answer(query.as_ref(), list).1).unwrap()
    }

    /// The code and the message of a failure.
    fn failure(query: impl AsRef<[u8]>) -> (String, String) {
        let json: serde_json::Value = serde_json::from_str(&ask(query)).unwrap();
        assert!(json.get("recordcnt").is_none());
        (json["errorcode"].as_str().unwrap().into(), json["errormsg"].as_str().unwrap().into())
    }

    fn bad(query: impl AsRef<[u8]>) -> String {
        let (code, message) = failure(query);
        assert_eq!(code, "1");
        message
    }

    #[test]
    fn the_seeds_samples_come_out_byte_for_byte() {
        assert_eq!(
            ask("cardid=2030230000000002&cardnet=4401&cmdtype=blacklistquery&serialno=1005&tbtype=0&version=201708031"),
            r#"{"cmdtype":"blacklistqueryresult","errorcode":"0","recordcnt":"0","serialno":"1005","version":"201708031"}"#
        );
        assert_eq!(
            ask("cardid=5186100181001473&cardnet=4401&cmdtype=blacklistquery&serialno=1011&tbtype=0&version=201708031"),
            r#"{"cmdtype":"blacklistqueryresult","darkstatus0":"1","darktype0":"7","darkver0":"1970-01-01 08:00:00","errorcode":"0","recordcnt":"1","serialno":"1011","status":"1","type":"7","version":"201708031"}"#
        );
    }

    #[test]
    fn the_order_the_net_and_what_is_unknown_do_not_matter() {
        let expected = ask(format!("cardid=5186100181001473&cardnet=4401&{REST}"));
        assert!(expected.contains(r#""recordcnt":"1""#));
        assert_eq!(ask(format!("&&{REST}&x=%20&y&=&cardnet=4401&cardid=5186100181001473&")), expected);
        assert_eq!(ask(format!("cardid=44015186100181001473&{REST}")), expected);
        assert_eq!(ask(format!("cardid=44015186100181001473&cardnet=&{REST}")), expected);
        assert_eq!(ask(format!("c%61rdid=%34%34015186100181001473&{REST}")), expected);
    }

    #[test]
    fn values_are_decoded_and_echoed_as_json() {
        assert!(ask("cardid=%C3%A9t%c3%a9+%26%20co&cmdtype=blacklistquery").contains(r#""recordcnt":"1""#));
        let echoed = ask("cardid=1&cmdtype=blacklistquery&serialno=%22%5C/%E2%82%AC&version=a=b");
        assert!(echoed.contains(r#""serialno":"\"\\/€","version":"a=b""#), "{echoed}");
        assert!(ask("cardid=1&cmdtype=blacklistquery").contains(r#""serialno":"","version":"""#));
    }

    #[test]
    fn a_failure_tells_its_code_and_reason_and_echoes_what_it_can() {
        assert_eq!(
            ask("cardnet=4401&cmdtype=blacklistquery&serialno=1005&version=201708031"),
            r#"{"cmdtype":"blacklistqueryresult","errorcode":"1","errormsg":"cardid is missing","serialno":"1005","version":"201708031"}"#
        );
        assert!(ask("cardid=%zz&serialno=7&cmdtype=blacklistquery").contains(r#""serialno":"7""#));
        let longest = "9".repeat(64);
        assert!(ask(format!("cardid=1&cmdtype=blacklistquery&serialno={longest}")).contains(&longest));
    }

    #[test]
    fn bad_parameters_are_refused() {
        assert_eq!(bad(""), "cmdtype is missing");
        assert_eq!(bad("cmdtype=blacklistquery&cardid="), "cardid is missing");
        assert_eq!(bad(format!("cardid=1&cardid=1&{REST}")), "cardid is given twice");
        assert_eq!(bad(format!("cardid=1&tbtype=1&{REST}")), "tbtype is given twice");
        assert_eq!(bad(format!("cardid=1&version=1&{REST}")), "version is given twice");
        for encoding in ["%", "%1", "%g1", "%1g", "1%"] {
            assert_eq!(bad(format!("cardid={encoding}&{REST}")), "cardid has a bad percent-encoding");
            assert_eq!(bad(format!("cardid=1&x={encoding}&{REST}")), "a parameter has a bad percent-encoding");
            assert_eq!(bad(format!("cardid=1&{encoding}=x&{REST}")), "a parameter's name has a bad percent-encoding");
        }
        assert_eq!(bad(format!("cardid=%ff&{REST}")), "cardid is not UTF-8");
        assert_eq!(bad([b"cardid=\xff&", REST.as_bytes()].concat()), "cardid is not UTF-8");
        for control in ["%00", "%0a", "%7f", "%c2%85", "\r"] {
            assert_eq!(bad(format!("cardid=1{control}&{REST}")), "cardid has control characters");
        }
        let long = "9".repeat(65);
        assert_eq!(bad(format!("cardid=1&cmdtype=blacklistquery&serialno={long}")), "serialno has more than 64 bytes");
        let message = bad(format!("cardid={}&{REST}", "9".repeat(4097)));
        assert_eq!(message, "a card id has at most 4096 bytes, got 4097");
    }

    #[test]
    fn another_command_is_a_failure_of_its_own() {
        let (code, message) = failure("cardid=1&cmdtype=whitelistquery");
        assert_eq!((code.as_str(), message.as_str()), ("2", "cmdtype must be blacklistquery"));
    }

    #[test]
    fn a_list_that_cannot_be_asked_is_never_an_empty_one() {
        let tags = Table::new(Schema::new(vec![Field::new("type", 0, 10)]).unwrap());
        for (list, message) in [
            (List::Missing, "there is no such list"),
            (List::NotReady, "the list is not loaded yet"),
            (List::Ready { table: &tags, darkver: String::new() }, "the list has no type and status"),
        ] {
            let json = ask_list(format!("cardid=1&{REST}"), &list);
            assert!(json.contains(&format!(r#""errorcode":"3","errormsg":"{message}""#)), "{json}");
            assert!(!json.contains("recordcnt"));
        }
    }
}
