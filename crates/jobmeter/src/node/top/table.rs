//! The layout of the screen: a head, ordered rows with a selection, a help line.

use super::keys::Key;
use crate::output::show::bytes;
use crate::output::times::Times;
use jiff::tz::TimeZone;
use model::Timestamp;
use std::cmp::Ordering;

/// A row: a job, process or node with its usage; `None`: unknown (yet).
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Row {
    /// The ID: a job's key, a PID or a node name.
    pub(super) id: String,
    /// An additional name.
    pub(super) name: String,
    pub(super) user: String,
    /// Busy cores.
    pub(super) cpu: Option<f64>,
    /// Bytes.
    pub(super) memory: Option<f64>,
    /// Bytes per second.
    pub(super) read: Option<f64>,
    /// Bytes per second.
    pub(super) written: Option<f64>,
    pub(super) tasks: Option<f64>,
}

/// The head of the screen: values of the node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Head {
    pub(super) device: String,
    pub(super) now: Timestamp,
    pub(super) jobs: usize,
    pub(super) load: Option<f64>,
    /// Busy cores.
    pub(super) busy: Option<f64>,
    pub(super) cores: Option<f64>,
    pub(super) memory_used: Option<f64>,
    pub(super) memory: Option<f64>,
    /// Reporting nodes and known nodes; `None` for a single node.
    pub(super) nodes: Option<(u64, u64)>,
    /// Power in watts, from the processors' energy counters.
    pub(super) energy: Option<f64>,
    /// Power in watts, from the sensor with the highest value.
    pub(super) sensor: Option<f64>,
}

/// Column that orders the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Name,
    User,
    Cpu,
    Memory,
    Read,
    Written,
    Tasks,
}

/// Heading, key and width of each column.
const COLUMNS: [(Column, char, &str, usize); 7] = [
    (Column::Name, 'n', "NAME", 21),
    (Column::User, 'u', "USER", 9),
    (Column::Cpu, 'c', "CPU %", 8),
    (Column::Memory, 'm', "MEMORY", 10),
    (Column::Read, 'r', "READ/s", 10),
    (Column::Written, 'w', "WRITTEN/s", 10),
    (Column::Tasks, 't', "TASKS", 6),
];
/// Total width of all columns, with a blank between two.
const COLUMNS_WIDE: usize = 80;
/// Maximum additional width of names.
const NAME_WIDTH_MAX: usize = 40;
/// Lines other than rows: two of the head, the title, the headings, the help line.
const OTHER_LINES: usize = 5;
/// The help text of `?`.
const KEYS: [&str; 14] = [
    "",
    "c m r w t  sort by processor, memory, bytes read, bytes written, last column",
    "n u        order by name, second column; the same key again reverses",
    "arrows     choose a row; page keys move a page",
    "enter      details of the row: processes of a job, nodes, jobs of a node",
    "j p d      jobs; processes of this node; nodes of a server",
    "/          filter; enter keeps it, escape removes it",
    "escape     removes the filter, then returns to the jobs",
    "q Ctrl-C   end",
    "",
    "CPU % of jobs, processes and the machine: 100 % is one core.",
    "-          unknown, or not read yet.",
    "",
    "any key returns",
];
/// Maximum length of the filter.
const FILTER_MAX: usize = 40;

/// A request of a key that the screen itself does not handle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ScreenAction {
    /// Quit.
    Quit,
    /// Show the jobs.
    Jobs,
    /// Show all processes.
    Processes,
    /// Show all nodes.
    Nodes,
    /// Show the details of this row.
    Of(String),
}

/// Texts that depend on the content of the screen.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScreenTexts {
    /// Heading of the second column.
    pub(super) user: &'static str,
    /// Heading of the last column.
    pub(super) tasks: &'static str,
    /// The help line.
    pub(super) help: &'static str,
}

/// The state of the table: order, filter, selection.
#[derive(Debug)]
pub(super) struct TableState {
    order: Column,
    reversed: bool,
    filter: String,
    is_typing: bool,
    is_help: bool,
    chosen: String,
    page: usize,
}

impl TableState {
    pub(super) const fn new() -> Self {
        Self {
            order: Column::Cpu,
            reversed: false,
            filter: String::new(),
            is_typing: false,
            is_help: false,
            chosen: String::new(),
            page: 1,
        }
    }

    /// Handles a key; `rows` are the rows on the screen.
    pub(super) fn key(&mut self, key: Key, rows: &[Row]) -> Option<ScreenAction> {
        if self.is_typing {
            return self.typed(key);
        }
        if std::mem::take(&mut self.is_help) && !matches!(key, Key::Char('q') | Key::Interrupt) {
            return None;
        }
        match key {
            Key::Char('q') | Key::Interrupt => return Some(ScreenAction::Quit),
            Key::Char('?') => self.is_help = true,
            Key::Char('j') => return Some(ScreenAction::Jobs),
            Key::Char('p') => return Some(ScreenAction::Processes),
            Key::Char('d') => return Some(ScreenAction::Nodes),
            Key::Char('/') => {
                self.is_typing = true;
                self.filter.clear();
            }
            Key::Escape if self.filter.is_empty() => return Some(ScreenAction::Jobs),
            Key::Escape => self.filter.clear(),
            Key::Enter => return self.chosen_of(rows).map(|row| ScreenAction::Of(row.id.clone())),
            Key::Up => self.choose(rows, |place, _| place.saturating_sub(1)),
            Key::Down => self.choose(rows, |place, _| place + 1),
            Key::PageUp => self.choose(rows, usize::saturating_sub),
            Key::PageDown => self.choose(rows, |place, page| place + page),
            Key::Char(letter) => {
                if let Some((column, ..)) = COLUMNS.iter().find(|(_, key, ..)| *key == letter) {
                    self.reversed = self.order == *column && !self.reversed;
                    self.order = *column;
                }
            }
            Key::Rubout => {}
        }
        None
    }

    fn typed(&mut self, key: Key) -> Option<ScreenAction> {
        match key {
            Key::Interrupt => return Some(ScreenAction::Quit),
            Key::Enter => self.is_typing = false,
            Key::Escape => {
                self.is_typing = false;
                self.filter.clear();
            }
            Key::Rubout => {
                self.filter.pop();
            }
            Key::Char(letter) if self.filter.len() < FILTER_MAX => self.filter.push(letter),
            _ => {}
        }
        None
    }

    fn place(&self, rows: &[Row]) -> usize {
        rows.iter().position(|row| row.id == self.chosen).unwrap_or(0)
    }

    fn chosen_of<'a>(&self, rows: &'a [Row]) -> Option<&'a Row> {
        rows.get(self.place(rows))
    }

    fn choose(&mut self, rows: &[Row], to: impl FnOnce(usize, usize) -> usize) {
        let place = to(self.place(rows), self.page).min(rows.len().saturating_sub(1));
        if let Some(row) = rows.get(place) {
            self.chosen.clone_from(&row.id);
        }
    }

    /// The rows that match the filter, in order.
    pub(super) fn ordered(&self, rows: &[Row]) -> Vec<Row> {
        let has = |text: &str| text.contains(&*self.filter);
        let through = |row: &&Row| has(&row.id) || has(&row.name) || has(&row.user);
        let mut rows: Vec<Row> = rows.iter().filter(through).cloned().collect();
        rows.sort_by(|a, b| {
            let order = self.compare(a, b);
            let order = if self.reversed { order.reverse() } else { order };
            order.then_with(|| natural(&a.id, &b.id))
        });
        rows
    }

    /// Compares rows: numbers descending, names ascending, unknown values last.
    fn compare(&self, a: &Row, b: &Row) -> Ordering {
        let number = |of: fn(&Row) -> Option<f64>| {
            let value = |row| of(row).unwrap_or(-1.0);
            value(b).total_cmp(&value(a))
        };
        match self.order {
            Column::Name => natural(&a.id, &b.id),
            Column::User => a.user.cmp(&b.user),
            Column::Cpu => number(|row| row.cpu),
            Column::Memory => number(|row| row.memory),
            Column::Read => number(|row| row.read),
            Column::Written => number(|row| row.written),
            Column::Tasks => number(|row| row.tasks),
        }
    }

    /// The lines of the screen, each at most `columns` wide. `title` describes the rows; `rows` are those of
    /// [`Self::ordered`].
    pub(super) fn draw(
        &mut self,
        head: &Head,
        title: &str,
        words: &ScreenTexts,
        rows: &[Row],
        (columns, lines): (usize, usize),
    ) -> Vec<String> {
        let lines_free = lines.saturating_sub(OTHER_LINES).max(1);
        self.page = lines_free;
        let place = self.place(rows);
        let first = place.saturating_sub(lines_free - 1);
        let mut screen = vec![machine(head), usage(head), self.status_line(title, rows.len())];
        screen.iter_mut().for_each(|line| cut(line, columns));
        if self.is_help {
            screen.extend(KEYS.iter().map(|line| (*line).to_owned()));
            screen.iter_mut().for_each(|line| cut(line, columns));
            screen.truncate(lines.max(1));
            return screen;
        }
        screen.push(marked(self.headings(words, columns), columns));
        for (number, row) in rows.iter().enumerate().skip(first).take(lines_free) {
            let mut line = cells(row, columns);
            if number == place {
                line = marked(line, columns);
            } else {
                cut(&mut line, columns);
            }
            screen.push(line);
        }
        screen.resize(lines_free + OTHER_LINES - 1, String::new());
        let mut help = words.help;
        if self.is_typing {
            help = "type a part of a name; enter keeps it, escape removes it";
        }
        let mut help = help.to_owned();
        cut(&mut help, columns);
        screen.push(help);
        screen.truncate(lines.max(1));
        screen
    }

    fn status_line(&self, title: &str, count: usize) -> String {
        let title = clean(title);
        match (&*self.filter, self.is_typing) {
            ("", false) => title,
            (filter, true) => format!("{title}  filter: {filter}_"),
            (filter, false) => format!("{title}  filter: {filter} ({count} shown)"),
        }
    }

    fn headings(&self, words: &ScreenTexts, columns: usize) -> String {
        let mut line = String::new();
        for (column, _, name, width) in COLUMNS {
            let width = widened(column, width, columns);
            let name = match column {
                Column::User => words.user,
                Column::Tasks => words.tasks,
                _ => name,
            };
            let mark =
                if column == self.order { if self.reversed { "^" } else { "v" } } else { "" };
            push(&mut line, &format!("{name}{mark}"), column, width);
        }
        line
    }
}

/// Width of a column; names use the additional width of the terminal.
fn widened(column: Column, width: usize, columns: usize) -> usize {
    let lines_free = columns.saturating_sub(COLUMNS_WIDE).min(NAME_WIDTH_MAX);
    if column == Column::Name { width + lines_free } else { width }
}

/// Compares as numbers if both are numbers, otherwise as text.
fn natural(a: &str, b: &str) -> Ordering {
    match (a.parse::<u64>(), b.parse::<u64>()) {
        (Ok(a), Ok(b)) => a.cmp(&b),
        _ => a.cmp(b),
    }
}

/// Appends a cell: names left-aligned, numbers right-aligned, truncated to the column's width.
fn push(line: &mut String, text: &str, column: Column, width: usize) {
    if !line.is_empty() {
        line.push(' ');
    }
    let text: String = text.chars().take(width).collect();
    match column {
        Column::Name | Column::User => line.push_str(&format!("{text:<width$}")),
        _ => line.push_str(&format!("{text:>width$}")),
    }
}

/// The cells of a row. A name follows the ID if it differs.
fn cells(row: &Row, columns: usize) -> String {
    let known =
        |value: Option<f64>, show: fn(f64) -> String| value.map_or_else(|| "-".to_owned(), show);
    let whole = row.id.ends_with(&row.name);
    let name = if whole { row.id.clone() } else { format!("{:>7} {}", row.id, row.name) };
    let mut line = String::new();
    for (column, _, _, width) in COLUMNS {
        let width = widened(column, width, columns);
        let text = match column {
            Column::Name => clean(&name),
            Column::User => clean(&row.user),
            Column::Cpu => known(row.cpu, |cores| format!("{:.1}", cores * 100.0)),
            Column::Memory => known(row.memory, bytes),
            Column::Read => known(row.read, bytes),
            Column::Written => known(row.written, bytes),
            Column::Tasks => known(row.tasks, |tasks| format!("{tasks:.0}")),
        };
        push(&mut line, &text, column, width);
    }
    line
}

fn machine(head: &Head) -> String {
    let load = head.load.map_or_else(String::new, |load| format!("   load {load:.2}"));
    let now = Times::at(head.now, TimeZone::system()).date_time(head.now);
    let jobs = if head.jobs == 1 { "1 job".to_owned() } else { format!("{} jobs", head.jobs) };
    let nodes = head.nodes.map_or_else(String::new, |(alive, all)| {
        format!("   {alive} of {all} {} alive", if all == 1 { "node" } else { "nodes" })
    });
    format!("{}   {}   {jobs}{nodes}{load}", clean(&head.device), now)
}

fn usage(head: &Head) -> String {
    let mut parts = Vec::new();
    if let (Some(busy), Some(cores)) = (head.busy, head.cores.filter(|cores| *cores > 0.0)) {
        // As in the rows, 100 % is one core.
        parts.push(format!(
            "cpu {:.1} % of {:.0} %, {cores:.0} cores",
            busy * 100.0,
            cores * 100.0
        ));
    }
    if let (Some(used), Some(memory)) = (head.memory_used, head.memory) {
        parts.push(format!("memory {} of {}", bytes(used), bytes(memory)));
    }
    parts.extend(head.energy.map(|watts| format!("processors {watts:.1} W")));
    parts.extend(head.sensor.map(|watts| format!("sensor {watts:.1} W")));
    parts.join("   ")
}

/// Replaces unsafe characters: a name may contain any byte, including control characters and characters of no
/// width.
fn clean(text: &str) -> String {
    text.chars().map(|c| if matches!(c, ' '..='~') { c } else { '?' }).collect()
}

fn cut(line: &mut String, columns: usize) {
    if let Some((end, _)) = line.char_indices().nth(columns) {
        line.truncate(end);
    }
}

/// Displays a line in reverse over the whole width.
fn marked(mut line: String, columns: usize) -> String {
    cut(&mut line, columns);
    format!("\x1b[7m{line:<columns$}\x1b[0m")
}

#[cfg(test)]
mod tests;
