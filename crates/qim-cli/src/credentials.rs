use std::fs;
use std::path::{Path, PathBuf};

use qim_access::Token;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::{Request, Status};

use crate::cli::GlobalArgs;
use crate::environment::Environment;
use crate::failure::Failure;

/// How the command and the server know each other.
#[derive(Debug, Clone, Default)]
pub(crate) struct Credentials {
    /// Sent with every request.
    pub(crate) bearer: Bearer,
    /// The only authorities that the server's certificate may come from.
    pub(crate) ca_file: Option<PathBuf>,
    /// The certificate and key to show to a server that asks.
    pub(crate) identity: Option<(PathBuf, PathBuf)>,
}

/// Adds the token to requests, where there is one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bearer(Option<MetadataValue<Ascii>>);

impl Credentials {
    /// The command line's, else the environment's. There is no option for the token itself: others would see it in the
    /// list of processes.
    pub(crate) fn new(global: &GlobalArgs, environment: &Environment) -> Result<Self, Failure> {
        let identity = global.client_cert_file.clone().zip(global.client_key_file.clone());
        let bearer = Bearer::new(token(global.token_file.as_deref(), environment)?.as_ref());
        Ok(Self { bearer, ca_file: global.ca_file.clone(), identity })
    }
}

fn token(file: Option<&Path>, environment: &Environment) -> Result<Option<Token>, Failure> {
    let bad = |source: &str, problem: &str| Failure::Configuration(format!("{source}: {problem}"));
    let (source, path) = match (file, &environment.token_file) {
        (Some(path), _) => ("--token-file", path),
        (None, Some(path)) => ("QIM_TOKEN_FILE", Path::new(path)),
        (None, None) => {
            let token = environment.token.as_deref().map(Token::parse);
            return token.map(|token| token.ok_or_else(|| bad("QIM_TOKEN", "is not a token"))).transpose();
        }
    };
    // Neither the path nor the content is shown: either may be the token.
    let content =
        fs::read_to_string(path).map_err(|error| bad(source, &format!("cannot be read: {error}")))?;
    Token::parse(content.trim()).map(Some).ok_or_else(|| bad(source, "holds no token"))
}

impl Bearer {
    fn new(token: Option<&Token>) -> Self {
        Self(token.map(|token| {
            let header = format!("Bearer {}", token.reveal());
            let mut value: MetadataValue<Ascii> = header.parse().expect("a token is ASCII");
            value.set_sensitive(true);
            value
        }))
    }
}

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(value) = &self.0 {
            request.metadata_mut().insert("authorization", value.clone());
        }
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(pairs: &[(&str, &str)]) -> Environment {
        Environment::from_lookup(|name| {
            pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    }

    fn found(file: Option<&Path>, pairs: &[(&str, &str)]) -> Option<String> {
        token(file, &environment(pairs)).unwrap().map(|token| token.reveal().to_owned())
    }

    #[test]
    fn the_command_line_goes_before_the_file_of_the_environment_and_that_before_its_token() {
        let [one, two, three] = [(); 3].map(|()| Token::generate().unwrap().reveal().to_owned());
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, token: &str| {
            fs::write(folder.path().join(name), format!("{token}\n")).unwrap();
            folder.path().join(name)
        };
        let (given, named) = (write("given", &one), write("named", &two));
        let both = [("QIM_TOKEN_FILE", named.to_str().unwrap()), ("QIM_TOKEN", three.as_str())];
        assert_eq!(found(Some(&given), &both), Some(one));
        assert_eq!(found(None, &both), Some(two));
        assert_eq!(found(None, &both[1..]), Some(three));
        assert_eq!(found(None, &[]), None);
    }

    #[test]
    fn what_is_no_token_is_refused_and_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "SECRET").unwrap();
        let name = path.to_str().unwrap();
        for (file, pairs) in [
            (Some(path.as_path()), &[][..]),
            (Some(Path::new("SECRET")), &[]),
            (None, &[("QIM_TOKEN_FILE", name)]),
            (None, &[("QIM_TOKEN", "SECRET")]),
            (None, &[("QIM_TOKEN", "")]),
        ] {
            let failure = token(file, &environment(pairs)).unwrap_err();
            assert_eq!(failure.exit_status(), 78);
            assert!(!failure.to_string().contains("SECRET"), "{failure}");
        }
    }
}
