//! The calls to Redis: plain commands and Lua scripts. A script is called by SHA-1 or, if the server does not have it
//! cached, by its text.

use std::sync::LazyLock;

use redis::{Cmd, ToRedisArgs};

use super::redis_keys::RedisKey;

/// A command or a script with its arguments, and the Redis key whose server it is sent to.
pub struct Call<'a> {
    /// The first Redis key. All of them are on the same server.
    pub redis_key: &'a RedisKey,
    pub command: Cmd,
    /// `None` for a plain command.
    script: Option<&'static Script>,
}

/// A command whose first argument is `redis_key`.
pub fn command<'a>(name: &str, redis_key: &'a RedisKey) -> Call<'a> {
    Call::without_args(name, redis_key).arg(redis_key.as_str())
}

impl<'a> Call<'a> {
    pub fn without_args(name: &str, redis_key: &'a RedisKey) -> Self {
        Self { redis_key, command: redis::cmd(name), script: None }
    }

    pub fn arg(mut self, arg: impl ToRedisArgs) -> Self {
        self.command.arg(arg);
        self
    }

    /// The `EVAL` command of a script, for a server that replies NOSCRIPT. It also caches the script there.
    pub fn by_text(&self) -> Option<Cmd> {
        let mut command = redis::cmd("EVAL");
        command.arg(self.script?.text);
        for part in self.command.args_iter().skip(2) {
            if let redis::Arg::Simple(bytes) = part {
                command.arg(bytes);
            }
        }
        Some(command)
    }
}

pub struct Script {
    text: &'static str,
    sha: String,
}

impl Script {
    /// Builds a call of the script on these Redis keys. Add arguments with [`Call::arg`].
    pub fn on<'a>(
        &'static self,
        redis_keys: impl IntoIterator<Item = &'a RedisKey, IntoIter: ExactSizeIterator>,
    ) -> Call<'a> {
        let mut redis_keys = redis_keys.into_iter();
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.sha).arg(redis_keys.len());
        let redis_key = redis_keys.next().expect("every script has a Redis key");
        command.arg(redis_key.as_str());
        for redis_key in redis_keys {
            command.arg(redis_key.as_str());
        }
        Call { redis_key, command, script: Some(self) }
    }

    /// Builds a call on the server of `redis_key` that declares no Redis keys: the script gets them as arguments.
    pub fn undeclared<'a>(&'static self, redis_key: &'a RedisKey) -> Call<'a> {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.sha).arg(0);
        Call { redis_key, command, script: Some(self) }
    }
}

macro_rules! script {
    ($name:ident, $($file:literal)+) => {
        pub static $name: LazyLock<Script> = LazyLock::new(|| {
            let text = concat!($(include_str!(concat!("../../../lua/", $file))),+);
            Script { text, sha: redis::Script::new(text).get_hash().to_owned() }
        });
    };
}

/// The script that finds out whether calls may be [`Script::undeclared`].
pub const SPANS_SLOTS: &str = include_str!("../../../lua/spans_slots.lua");

script!(CHARGE, "announce.lua" "charge.lua");
script!(LOAD, "announce.lua" "load.lua");
script!(COMMIT, "commit.lua");
