use redis::{Arg, Cmd, ToRedisArgs};

/// A Lua script, called by its hash. Where a server has not got it (it was restarted, or has just taken over) the call is
/// repeated with the script itself: that reaches the very server that said so. `SCRIPT LOAD` would go to all nodes of a
/// cluster, and wait for each that hangs.
pub(super) struct Script {
    code: String,
    hash: String,
}

/// What a script is called with.
pub(super) struct ScriptCall<'a> {
    pub(super) script: &'a Script,
    keys: Vec<Vec<u8>>,
    args: Vec<Vec<u8>>,
}

impl Script {
    pub(super) fn new(code: String) -> Self {
        let hash = sha1_smol::Sha1::from(&code).digest().to_string();
        Self { code, hash }
    }

    pub(super) fn hash(&self) -> &str {
        &self.hash
    }

    pub(super) fn call(&self) -> ScriptCall<'_> {
        ScriptCall { script: self, keys: Vec::new(), args: Vec::new() }
    }

    /// The same call as this `EVALSHA`, with the script itself.
    pub(super) fn eval(&self, evalsha: &Cmd) -> Cmd {
        let mut eval = Cmd::with_capacity(evalsha.args_iter().len(), evalsha.get_packed_command().len());
        eval.arg("EVAL").arg(&self.code);
        for arg in evalsha.args_iter().skip(2) {
            match arg {
                Arg::Simple(bytes) => eval.arg(bytes),
                _ => unreachable!("a script call has no cursor"),
            };
        }
        eval
    }
}

impl ScriptCall<'_> {
    /// `None` is no key.
    pub(super) fn key(&mut self, key: impl ToRedisArgs) -> &mut Self {
        key.write_redis_args(&mut self.keys);
        self
    }

    pub(super) fn arg(&mut self, arg: impl ToRedisArgs) -> &mut Self {
        arg.write_redis_args(&mut self.args);
        self
    }

    pub(super) fn evalsha(&self) -> Cmd {
        let mut call = Cmd::new();
        call.arg("EVALSHA").arg(&self.script.hash).arg(self.keys.len());
        for argument in self.keys.iter().chain(&self.args) {
            call.arg(argument);
        }
        call
    }
}
