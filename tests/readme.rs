//! The README: every command in it is run, beside a server that `make start` has started, and says what the README says.

mod common;

use std::fs;
use std::process::{Command, Stdio};

use common::clone::Clone;
use common::gateway::project;

/// A command of a `console` block, and what it prints; `…` stands for anything.
struct Step {
    command: String,
    output: String,
}

fn readme() -> String {
    fs::read_to_string(project().join("README.md")).expect("README.md")
}

/// The blocks of a language.
fn blocks(language: &str) -> Vec<String> {
    let readme = readme();
    let fence = format!("```{language}\n");
    let blocks = readme.split(fence.as_str()).skip(1);
    blocks.map(|rest| rest.split("```").next().expect("a block ends").to_owned()).collect()
}

fn steps() -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in blocks("console").iter().flat_map(|block| block.lines()) {
        match line.strip_prefix("$ ") {
            Some(command) => steps.push(Step { command: command.into(), output: String::new() }),
            None => steps.last_mut().expect("a command comes first").output += &format!("{line}\n"),
        }
    }
    steps
}

/// Whether a text is as expected, where `…` stands for anything.
fn is_as(found: &str, expected: &str) -> bool {
    let mut parts = expected.split('…');
    let Some(mut rest) = found.strip_prefix(parts.next().expect("there is a first part")) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, between)) = parts.split_last() else { return rest.is_empty() };
    for part in between {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[test]
fn what_stands_for_anything_does() {
    assert!(is_as("abc", "abc") && is_as("abc", "a…c") && is_as("abc", "…") && is_as("a-b-c", "a…b…c"));
    assert!(!is_as("abc", "ab") && !is_as("abc", "a…d") && !is_as("abc", "b…c") && !is_as("ab", "a…b…c"));
}

#[test]
fn every_command_says_what_the_readme_says() {
    let clone = Clone::new();
    clone.make_well("start");
    let steps = steps();
    assert!(steps.len() >= 15, "the README has its commands");
    for Step { command, output } in steps {
        let [redis, http, status] = [clone.redis_port, clone.port, clone.status_port].map(|port| port.to_string());
        let here = command
            .replace("6380", &redis)
            .replace(":8020", &format!(":{http}"))
            .replace(":8021", &format!(":{status}"));
        let ran = Command::new("sh")
            .args(["-c", &here.replace("curl ", "curl -s ")])
            .env("CARDCTL_REDIS", format!("redis://127.0.0.1:{redis}"))
            .current_dir(clone.folder.path())
            .stdin(Stdio::null())
            .output()
            .expect("a shell");
        let said = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success(), "{command}: {ran:?}");
        assert!(is_as(said.trim_end(), output.trim_end()), "{command}\nsaid {said}\nand should {output}");
    }
    // The list that was dropped into the directory.
    common::wait_for(30, "it is loaded", || clone.path("run/lists/done/gates.1.full.tsv").exists());
}

#[test]
fn every_target_of_make_is_there() {
    let targets: Vec<String> = blocks("sh")
        .iter()
        .flat_map(|block| block.lines())
        .map(|line| line.split('#').next().expect("a first part").trim().to_owned())
        .filter(|line| !line.is_empty())
        .collect();
    assert!(targets.contains(&"make run".into()) && targets.contains(&"make test".into()));
    for command in targets {
        let target = command.strip_prefix("make ").unwrap_or_else(|| panic!("{command} is make"));
        // What it would do, without doing it.
        let told = Command::new("make").args(["-n", target]).current_dir(project()).output().expect("make runs");
        assert!(told.status.success(), "{command}: {told:?}");
    }
}

#[test]
fn every_link_leads_somewhere() {
    let readme = readme();
    let links: Vec<&str> = readme.split("](").skip(1).map(|rest| rest.split(')').next().expect("it ends")).collect();
    assert!(links.len() > 10);
    for link in links.into_iter().filter(|link| !link.starts_with("http")) {
        let path = link.split('#').next().expect("a path");
        assert!(project().join(path).exists(), "{link}");
    }
}
