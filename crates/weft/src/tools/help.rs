//! What the tools say of themselves.

use super::arguments::{Command, Form, LeftOut, Parameter, Tool};

impl Tool {
    /// The list of commands.
    pub fn list(&self) -> String {
        let name = self.name;
        let widest = self.commands.iter().map(|command| command.name.len()).max().unwrap_or(0);
        let mut text = format!("{}. `{name} help COMMAND` tells what a command takes.\n", self.about);
        for command in self.commands {
            text += &format!("  {:<widest$}  {}{}\n", command.name, command.about, also(command));
        }
        if !self.left_out.is_empty() {
            text += &format!("\nCommands of OpenAFS's {name} that are not here, and why:\n");
        }
        for LeftOut { names, why } in self.left_out {
            text += &format!("  {}: {why}\n", names.join(", "));
        }
        text
    }

    /// What a command takes.
    pub fn help_of(&self, command: &Command) -> String {
        let parameters = self.parameters(command);
        let usage: Vec<String> = parameters.iter().map(|parameter| parameter.usage()).collect();
        let mut text = format!("{} {}: {}{}\n", self.name, command.name, command.about, also(command));
        text += &format!("Usage: {} {} {} [-json] [-help]\n", self.name, command.name, usage.join(" "));
        text.replace("  ", " ")
    }
}

impl Parameter {
    /// `[-path <dir/file path>+]`
    fn usage(&self) -> String {
        let named = match self.form {
            Form::Flag => format!("-{}", self.name),
            Form::One => format!("-{} <{}>", self.name, self.about),
            Form::Several => format!("-{} <{}>+", self.name, self.about),
        };
        if self.needed { named } else { format!("[{named}]") }
    }
}

fn also(command: &Command) -> String {
    match command.aliases {
        [] => String::new(),
        names => format!(" (also {})", names.join(", ")),
    }
}
