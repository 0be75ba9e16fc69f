//! The Lua scripts, called by SHA-1 or, if the server does not have them cached, by text.

use std::sync::LazyLock;

use redis::{Cmd, ToRedisArgs};

use super::redis_keys::RedisKey;

pub struct Script {
    text: &'static str,
    sha: LazyLock<String>,
}

macro_rules! script {
    ($name:ident, $file:literal) => {
        pub static $name: Script = Script {
            text: include_str!(concat!("../../../lua/", $file)),
            sha: LazyLock::new(|| {
                redis::Script::new(include_str!(concat!("../../../lua/", $file))).get_hash().to_owned()
            }),
        };
    };
}

script!(CHARGE, "charge.lua");
script!(RESERVE, "reserve.lua");
script!(CHECK_RESERVATIONS, "check_reservations.lua");
script!(LIST_RESERVATIONS, "list_reservations.lua");
script!(RELEASE, "release.lua");
script!(CREATE_KEY, "create_key.lua");
script!(CHANGE_KEY, "change_key.lua");
script!(DELETE_KEY, "delete_key.lua");
script!(CREATE_ACCOUNT, "create_account.lua");
script!(BEGIN_DELETION, "begin_deletion.lua");
script!(SET_CREDENTIAL, "set_credential.lua");
script!(SESSION, "session.lua");

/// A script with its Redis keys and arguments.
pub struct ScriptCall<'a> {
    script: &'static Script,
    /// The first Redis key. All of them are on the same server.
    pub redis_key: &'a RedisKey,
    by_sha: Cmd,
}

impl Script {
    /// Builds a call of the script on these Redis keys. Add arguments with [`ScriptCall::arg`].
    pub fn on<'a>(
        &'static self,
        redis_keys: impl IntoIterator<Item = &'a RedisKey, IntoIter: ExactSizeIterator>,
    ) -> ScriptCall<'a> {
        let mut redis_keys = redis_keys.into_iter();
        let mut by_sha = redis::cmd("EVALSHA");
        by_sha.arg(&*self.sha).arg(redis_keys.len());
        let first = redis_keys.next().expect("every script has a Redis key");
        by_sha.arg(first.as_str());
        for redis_key in redis_keys {
            by_sha.arg(redis_key.as_str());
        }
        ScriptCall { script: self, redis_key: first, by_sha }
    }
}

impl ScriptCall<'_> {
    pub fn arg(mut self, arg: impl ToRedisArgs) -> Self {
        self.by_sha.arg(arg);
        self
    }

    /// The `EVALSHA` command.
    pub fn by_sha(&self) -> Cmd {
        self.by_sha.clone()
    }

    /// The `EVAL` command, for a server that replies NOSCRIPT. It also caches the script there.
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
