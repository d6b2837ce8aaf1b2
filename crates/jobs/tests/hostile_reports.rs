//! Attacks on the registry by a node with an agent's token, and by somebody with the token of one cluster's jobs.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod told;

use jobs::{
    AccountChange, AccountKey, Amendment, JobName, Nameless, Reader, Record, Registry, Sees,
};
use model::{ClusterId, JobEvent, JobId, JobKey};
use told::{at, event, key, open, record};

/// Whose job the attacker is.
const MALLORY: u32 = 65_533;

fn of(uid: u32, id: i64, node: &str, start: i64) -> JobEvent {
    JobEvent { uid: Some(uid), ..event(id, node, start, None) }
}

fn oar(id: i64) -> JobKey {
    JobKey { cluster: ClusterId::new("oar").unwrap(), id: JobId::new(id).unwrap() }
}

fn sees(registry: &Registry, key: &JobKey) -> Sees {
    registry.sees_any(Reader::User(MALLORY), key).unwrap()
}

#[test]
fn a_nodes_word_on_a_user_makes_no_member_of_an_account() {
    let physics: AccountKey = "slurm:physics".parse().unwrap();
    for nodes in [&[][..], &["n1", "n9"]] {
        for node_first in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let registry = open(&dir);
            registry.tell(&[record(601, 100, None, &["n2"])], at(200)).unwrap();
            let change = AccountChange { members_see: Some(Sees::All), users: vec![] };
            registry.change_account(&physics, &change).unwrap();
            let nobodys = Record { user: None, uid: None, ..record(602, 100, None, nodes) };
            let lie = of(MALLORY, 602, "n1", 101);
            if node_first {
                registry.apply(std::slice::from_ref(&lie), at(200)).unwrap();
            }
            registry.tell(std::slice::from_ref(&nobodys), at(200)).unwrap();
            registry.apply(&[lie], at(200)).unwrap();
            let people = || {
                let people = registry.account(&physics).unwrap().unwrap().users;
                people.into_iter().map(|(uid, _)| uid).collect::<Vec<_>>()
            };
            assert_eq!(people(), [1000], "{nodes:?} {node_first}");
            assert_eq!(sees(&registry, &key(601)), Sees::Nothing);
            // The record's own word makes a member, and another of the record takes the membership back.
            let of_2000 = Record { uid: Some(2000), ..nobodys.clone() };
            registry.tell(&[of_2000], at(300)).unwrap();
            assert_eq!(people(), [1000, 2000]);
            registry.tell(&[nobodys], at(400)).unwrap();
            assert_eq!(people(), [1000]);
        }
    }
}

#[test]
fn a_name_told_for_one_cluster_takes_over_no_job_of_another() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    let daves = |key: JobKey| Record {
        key,
        user: Some("dave".into()),
        account: None,
        ..record(1, 100, None, &["n2"])
    };
    let push = |name: &str, uid| {
        let pushed = Amendment {
            user: Some(name.into()),
            uid: Some(uid),
            start: Some(at(150)),
            ..Amendment::new(key(i64::from(uid)))
        };
        registry.amend(vec![pushed], at(200)).unwrap()
    };
    registry.tell(&[daves(oar(7))], at(110)).unwrap();
    push("dave", MALLORY);
    // Before and after: by records, by nodes, and as the server looks for numbers.
    registry.tell(&[daves(oar(8))], at(210)).unwrap();
    let by_node =
        JobEvent { key: oar(9), user: Some("dave".into()), uid: None, ..event(9, "n2", 100, None) };
    registry.apply(&[by_node], at(210)).unwrap();
    for user in registry.users_without_number(None, 9).unwrap().names {
        assert_eq!(registry.user_number(&user).unwrap(), None, "{user:?}");
    }
    for id in [7, 8, 9] {
        assert_eq!(registry.owner(&oar(id)).unwrap(), None);
        assert_eq!(sees(&registry, &oar(id)), Sees::Nothing, "{id}");
    }
    // In its own cluster a pushed number replaces none, be it of the scheduler or of the name service.
    let erin = Record { user: Some("erin".into()), uid: Some(3000), ..record(10, 100, None, &[]) };
    registry.tell(&[erin], at(300)).unwrap();
    push("erin", MALLORY + 1);
    registry.number_user("frank", 4000, at(300)).unwrap();
    push("frank", MALLORY + 2);
    let number = |cluster: &str, name: &str| {
        let cluster = ClusterId::new(cluster).unwrap();
        registry.user_number(&Nameless { name: name.into(), cluster }).unwrap()
    };
    assert_eq!((number("slurm", "erin"), number("oar", "erin")), (Some(3000), None));
    assert_eq!((number("slurm", "frank"), number("oar", "frank")), (Some(4000), Some(4000)));
    // The scheduler itself corrects its own, and the name service all.
    let erin = Record { user: Some("erin".into()), uid: Some(3001), ..record(11, 100, None, &[]) };
    registry.tell(&[erin], at(400)).unwrap();
    assert_eq!(number("slurm", "erin"), Some(3001));
    assert_eq!(registry.number_user("dave", 5000, at(400)).unwrap(), 3);
    assert_eq!((number("slurm", "dave"), number("oar", "dave")), (Some(5000), Some(5000)));
    assert_eq!(registry.owner(&oar(7)).unwrap(), Some(5000));
}

#[test]
fn many_names_of_one_node_keep_no_others_name_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    let named = |id, node: &str, name: String| JobEvent {
        user: Some(name.into()),
        uid: None,
        ..event(id, node, 10, None)
    };
    let flood: Vec<_> = (0..4200).map(|n| named(1000 + n, "n1", format!("!{n:05}"))).collect();
    registry.apply(&flood, at(20)).unwrap();
    registry.apply(&[named(1, "n2", "zoe".to_owned())], at(20)).unwrap();
    let recorded = Record { user: Some("yves".into()), ..record(2, 10, None, &[]) };
    registry.tell(&[recorded], at(20)).unwrap();
    // Rounds as the server has them: a page each, of which the first sixteen are asked for.
    let (mut last, mut asked) = (None, Vec::new());
    for _ in 0..2 {
        let page = registry.users_without_number(last.as_ref(), 4096).unwrap();
        asked.extend(page.names.into_iter().take(16).map(|user| user.name.to_string()));
        last = page.last;
    }
    assert_eq!(last, None, "it begins anew");
    assert_eq!(asked.get(16).map(String::as_str), Some("yves"), "a scheduler's first");
    assert!(asked.contains(&"zoe".to_owned()), "{asked:?}");
    // In one page, each node has its turn.
    let all = registry.users_without_number(None, 10_000).unwrap();
    let first: Vec<_> = all.names.iter().take(3).map(|user| &*user.name).collect();
    assert_eq!((first, all.names.len()), (vec!["yves", "!00000", "zoe"], 4202));
}

#[test]
fn no_node_makes_the_name_of_a_recorded_job_ambiguous() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir);
    let task = Record {
        spelling: "100_1".into(),
        part_of: Some(100),
        array_index: Some(1),
        ..record(101, 10, None, &["n2"])
    };
    registry.tell(&[task], at(20)).unwrap();
    let spelled =
        |key: JobKey| JobEvent { key, spelling: "100_1".into(), ..event(1, "n1", 10, None) };
    registry.apply(&[spelled(key(7777)), spelled(oar(7777))], at(20)).unwrap();
    let resolve = |text: &str, reader| {
        registry.resolve_seen(&text.parse::<JobName>().unwrap(), reader).unwrap()
    };
    for reader in [Reader::Everything, Reader::User(1000)] {
        assert_eq!(resolve("100_1", reader), key(101));
        assert_eq!(resolve("slurm:100_1", reader), key(101));
        assert_eq!(resolve("oar:100_1", reader), oar(7777), "no record has it there");
    }
}
