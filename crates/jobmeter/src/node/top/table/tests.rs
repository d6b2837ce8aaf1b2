//! Tests of order, filter and lines of the screen.

use super::*;
use proptest::prelude::*;

fn row(id: &str, name: &str, cpu: f64, memory: f64) -> Row {
    Row {
        id: id.to_owned(),
        name: name.to_owned(),
        user: "0".to_owned(),
        cpu: Some(cpu),
        memory: Some(memory),
        ..Row::default()
    }
}

const WORDS: ScreenTexts = ScreenTexts { user: "USER", tasks: "TASKS", help: "q quit" };

fn rows() -> Vec<Row> {
    vec![row("9", "make", 0.5, 3e9), row("10", "cc1", 1.5, 1e9), row("11", "cc1", 0.1, 2e9)]
}

fn ids(shown: &TableState) -> Vec<String> {
    shown.ordered(&rows()).into_iter().map(|row| row.id).collect()
}

fn press(shown: &mut TableState, keys: &str) -> Option<ScreenAction> {
    keys.chars().fold(None, |_, letter| {
        let key = if letter == '\n' { Key::Enter } else { Key::Char(letter) };
        let now = shown.ordered(&rows());
        shown.key(key, &now)
    })
}

#[test]
fn keys_order_and_the_same_again_turns_round() {
    let mut shown = TableState::new();
    assert_eq!(ids(&shown), ["10", "9", "11"]);
    press(&mut shown, "m");
    assert_eq!(ids(&shown), ["9", "11", "10"]);
    press(&mut shown, "m");
    assert_eq!(ids(&shown), ["10", "11", "9"]);
    press(&mut shown, "n");
    assert_eq!(ids(&shown), ["9", "10", "11"], "numbers, not texts");
}

#[test]
fn a_filter_takes_letters_that_are_keys_and_is_dropped_by_escape() {
    let mut shown = TableState::new();
    assert_eq!(press(&mut shown, "/cc"), None);
    assert_eq!(ids(&shown), ["10", "11"]);
    assert_eq!(press(&mut shown, "q"), None, "q is a letter here");
    assert_eq!(ids(&shown), [""; 0]);
    shown.key(Key::Rubout, &[]);
    assert_eq!(press(&mut shown, "\n"), None);
    assert_eq!(press(&mut shown, "\n"), Some(ScreenAction::Of("10".to_owned())));
    assert_eq!(shown.key(Key::Escape, &[]), None);
    assert_eq!(ids(&shown).len(), 3);
    assert_eq!(shown.key(Key::Escape, &[]), Some(ScreenAction::Jobs));
    assert_eq!(press(&mut shown, "q"), Some(ScreenAction::Quit));
}

#[test]
fn the_chosen_row_remains_chosen_when_the_order_changes() {
    let mut shown = TableState::new();
    let now = shown.ordered(&rows());
    shown.key(Key::Down, &now);
    assert_eq!(press(&mut shown, "m\n"), Some(ScreenAction::Of("9".to_owned())));
    shown.key(Key::PageDown, &shown.ordered(&rows()));
    shown.key(Key::Down, &shown.ordered(&rows()));
    shown.key(Key::Down, &shown.ordered(&rows()));
    assert_eq!(press(&mut shown, "\n"), Some(ScreenAction::Of("10".to_owned())), "the last one");
    assert_eq!(shown.key(Key::Enter, &[]), None);
}

#[test]
fn eighty_columns_are_enough_for_every_column() {
    let mut full = row("slurm:123456", "123456", 12.345, 3e12);
    (full.read, full.written, full.tasks) = (Some(1e9), Some(2048.0), Some(12345.0));
    let head = Head {
        device: "n1".to_owned(),
        busy: Some(1.0),
        cores: Some(2.0),
        memory_used: Some(1e9),
        memory: Some(4e9),
        ..Head::default()
    };
    let screen = TableState::new().draw(&head, "jobs", &WORDS, &[full], (80, 24));
    assert_eq!(screen.len(), 24);
    assert_eq!(screen[1], "cpu 100.0 % of 200 %, 2 cores   memory 953.7 MiB of 3.7 GiB");
    assert_eq!(
        screen[4],
        "\x1b[7mslurm:123456          0           1234.5    2.7 TiB  953.7 MiB    2.0 KiB  12345\x1b[0m"
    );
    assert!(screen[3].contains("CPU %v"), "{}", screen[3]);
    let mut shown = TableState::new();
    assert_eq!(shown.key(Key::Char('?'), &[]), None);
    let help = shown.draw(&head, "jobs", &WORDS, &[Row::default()], (80, 24)).join("\n");
    assert!(help.contains("100 % is one core") && help.contains("any key returns"), "{help}");
    assert_eq!(shown.key(Key::Char('m'), &[]), None);
    let screen = shown.draw(&head, "jobs", &WORDS, &[Row::default()], (80, 24)).join("\n");
    assert!(screen.contains("CPU %v"), "the key closes the help, and orders nothing: {screen}");
    let unknown = TableState::new().draw(&head, "jobs", &WORDS, &[Row::default()], (80, 24));
    assert!(unknown[4].contains(" - "), "what is not known is no zero: {}", unknown[4]);
}

#[test]
fn a_wide_window_gives_names_more_width() {
    let name = "a-node-of-a-long-name.site.example";
    let node = Row { id: name.to_owned(), user: "alive".to_owned(), ..Row::default() };
    let words = ScreenTexts { user: "STATE", tasks: "JOBS", help: "q quit" };
    let screen = |columns| {
        TableState::new().draw(
            &Head::default(),
            "nodes",
            &words,
            std::slice::from_ref(&node),
            (columns, 9),
        )
    };
    assert!(screen(80)[4].contains("a-node-of-a-long-name alive "), "{:?}", screen(80));
    assert!(screen(100)[4].contains(&format!("{name}        alive ")), "{:?}", screen(100));
    let at = |line: &str, word| line.find(word).unwrap();
    for lines in [screen(80), screen(100), screen(300)] {
        assert_eq!(at(&lines[3], "STATE"), at(&lines[4], "alive"), "{lines:?}");
        assert!(lines[3].contains(" JOBS"), "{lines:?}");
    }
}

#[test]
fn names_cannot_speak_to_the_terminal() {
    let evil = row("7", "\x1b]0;x\x07\u{202e}名", 1.0, 1.0);
    let screen = TableState::new().draw(&Head::default(), "\x1b[2J", &WORDS, &[evil], (80, 24));
    let text = screen.join("\n").replace("\x1b[7m", "").replace("\x1b[0m", "");
    assert!(text.chars().all(|c| c == '\n' || matches!(c, ' '..='~')), "{text:?}");
}

proptest! {
    #[test]
    fn no_window_is_too_small(columns in 0_usize..200, lines in 0_usize..60, down in 0_usize..9) {
        let mut shown = TableState::new();
        let rows = shown.ordered(&rows());
        (0..down).for_each(|_| { shown.key(Key::Down, &rows); });
        let screen = shown.draw(&Head::default(), "jobs", &WORDS, &rows, (columns, lines));
        prop_assert!(screen.len() <= lines.max(1));
        for line in screen {
            let seen = line.replace("\x1b[7m", "").replace("\x1b[0m", "");
            prop_assert!(seen.chars().count() <= columns);
        }
    }
}
