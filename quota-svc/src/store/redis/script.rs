//! The Lua scripts, by their text and by their SHA-1.

use std::sync::LazyLock;

use redis::{Cmd, ToRedisArgs};

use super::names::Name;

/// A script that the server knows by its SHA-1 once it has run.
pub struct Script {
    text: &'static str,
    sha: LazyLock<String>,
}

macro_rules! script {
    ($name:ident, $file:literal) => {
        pub static $name: Script = Script {
            text: include_str!(concat!("../../../lua/", $file)),
            sha: LazyLock::new(|| sha1(include_str!(concat!("../../../lua/", $file)))),
        };
    };
}

script!(CHARGE, "charge.lua");
script!(RESERVE, "reserve.lua");
script!(CREATE_KEY, "create_key.lua");
script!(CHANGE_KEY, "change_key.lua");
script!(DELETE_KEY, "delete_key.lua");
script!(CREATE_ACCOUNT, "create_account.lua");
script!(SET_CREDENTIAL, "set_credential.lua");
script!(SESSION, "session.lua");

/// A script with its keys and arguments.
pub struct Call {
    script: &'static Script,
    /// As it is sent nearly always.
    by_sha: Cmd,
}

impl Script {
    /// The script on these names; arguments follow by [`Call::arg`].
    pub fn on<'a>(&'static self, names: impl ExactSizeIterator<Item = &'a Name>) -> Call {
        let mut by_sha = redis::cmd("EVALSHA");
        by_sha.arg(&*self.sha).arg(names.len());
        for name in names {
            by_sha.arg(name.as_str());
        }
        Call { script: self, by_sha }
    }
}

impl Call {
    /// Adds an argument.
    pub fn arg(mut self, arg: impl ToRedisArgs) -> Self {
        self.by_sha.arg(arg);
        self
    }

    /// The call by the script's SHA-1.
    pub fn by_sha(&self) -> Cmd {
        self.by_sha.clone()
    }

    /// The call with the script's text, for a server that has forgotten it.
    pub fn by_text(&self) -> Cmd {
        let mut command = redis::cmd("EVAL");
        command.arg(self.script.text);
        for part in self.by_sha.args_iter().skip(2) {
            if let redis::Arg::Simple(bytes) = part {
                command.arg(bytes);
            }
        }
        command
    }
}

fn sha1(text: &str) -> String {
    data_encoding::HEXLOWER.encode(&<sha1::Sha1 as sha1::Digest>::digest(text.as_bytes()))
}
