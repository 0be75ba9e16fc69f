//! Text with slots. All slots are filled in one pass, so that a value that looks like a slot stays as it is.

/// A text in which each `{{name}}` is a slot.
pub(super) struct Template {
    /// Each slot with the text before it.
    slots: Vec<(String, String)>,
    /// The text after the last slot.
    rest: String,
}

impl Template {
    pub(super) fn new(text: &str) -> Self {
        let (mut slots, mut rest) = (Vec::new(), text);
        while let Some((before, (name, after))) =
            rest.split_once("{{").and_then(|(before, slot)| Some((before, slot.split_once("}}")?)))
        {
            slots.push((before.to_owned(), name.to_owned()));
            rest = after;
        }
        Self { slots, rest: rest.to_owned() }
    }

    /// Fills the slots for which there is a value. The others stay slots.
    pub(super) fn fill(self, value: impl Fn(&str) -> Option<String>) -> Self {
        let (mut slots, mut text) = (Vec::new(), String::new());
        for (before, name) in self.slots {
            text.push_str(&before);
            match value(&name) {
                Some(value) => text.push_str(&value),
                None => slots.push((std::mem::take(&mut text), name)),
            }
        }
        Self { slots, rest: text + &self.rest }
    }

    /// The text with a value for each slot.
    pub(super) fn render(&self, value: impl Fn(&str) -> String) -> String {
        let mut text = String::new();
        for (before, name) in &self.slots {
            text.push_str(before);
            text.push_str(&value(name));
        }
        text + &self.rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_that_looks_like_a_slot_is_not_filled() {
        let template = Template::new("a {{one}}, {{two}}; {{open").fill(|name| {
            let known = name == "one";
            known.then(|| "{{two}}".to_owned())
        });
        let text = template.render(|name| format!("<{name}> {{{{one}}}}"));
        assert_eq!(text, "a {{two}}, <two> {{one}}; {{open");
    }
}
