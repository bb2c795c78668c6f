use std::io;

/// Why a command did not end well; decides the exit status.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The command did its work and found something wrong.
    #[error("{0}")]
    Found(String),
    /// The server refused, for good.
    #[error("{0}")]
    Refused(String),
    /// The command line, or a file it names, cannot be used.
    #[error("{0}")]
    Usage(String),
    /// The server cannot be reached, or is not ready to answer.
    #[error("{0}")]
    Unavailable(String),
    /// An environment variable, or a file that configures the command, is wrong.
    #[error("{0}")]
    Configuration(String),
    /// The result cannot be printed.
    #[error("cannot write the result: {0}")]
    Output(io::Error),
}

impl Failure {
    /// 1 found wrong, 2 usage, 69 server unavailable, 78 configuration.
    pub fn exit_status(&self) -> u8 {
        match self {
            // Whoever closed the pipe has seen enough.
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => 0,
            Self::Found(_) | Self::Refused(_) | Self::Output(_) => 1,
            Self::Usage(_) => 2,
            Self::Unavailable(_) => 69,
            Self::Configuration(_) => 78,
        }
    }

    /// There is nothing to tell anybody.
    pub fn is_quiet(&self) -> bool {
        self.exit_status() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_pipe_is_quiet_and_any_other_write_error_is_not() {
        let closed = Failure::Output(io::ErrorKind::BrokenPipe.into());
        assert!(closed.is_quiet());
        let full = Failure::Output(io::ErrorKind::StorageFull.into());
        assert!(!full.is_quiet());
        assert_eq!(full.exit_status(), 1);
    }
}
