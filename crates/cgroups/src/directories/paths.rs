//! A stack of paths in reused memory.

/// A stack of paths in one text.
#[derive(Debug, Default)]
pub(crate) struct PathStack {
    text: String,
    starts: Vec<usize>,
}

impl PathStack {
    /// Pushes `dir/name`, or `dir` if the name is empty.
    pub(crate) fn push(&mut self, dir: &str, name: &str) {
        self.starts.push(self.text.len());
        self.text.push_str(dir);
        if !name.is_empty() {
            self.text.push('/');
            self.text.push_str(name);
        }
    }

    /// Pops the last path into `path`; false if there is none.
    pub(crate) fn pop(&mut self, path: &mut String) -> bool {
        let Some(start) = self.starts.pop() else { return false };
        path.clear();
        path.push_str(self.text.get(start..).unwrap_or_default());
        self.text.truncate(start);
        true
    }

    /// Removes all paths.
    pub(crate) fn clear(&mut self) {
        self.starts.clear();
        self.text.clear();
    }
}

/// Writes `dir/name` into `path`.
pub(crate) fn join(path: &mut String, dir: &str, name: &str) {
    path.clear();
    path.push_str(dir);
    path.push('/');
    path.push_str(name);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_in_first_out() {
        let mut stack = PathStack::default();
        stack.push("a", "b");
        stack.push("c", "");
        let mut path = "old".to_owned();
        assert!(stack.pop(&mut path));
        assert_eq!(path, "c");
        assert!(stack.pop(&mut path));
        assert_eq!(path, "a/b");
        assert!(!stack.pop(&mut path));
        stack.push("d", "");
        stack.clear();
        assert!(!stack.pop(&mut path));
        join(&mut path, "x", "y");
        assert_eq!(path, "x/y");
    }
}
