use qim_access::{Grant, Tenants, Token, validate_token_id};
use qim_core::TenantId;
use serde_json::json;

use crate::cli::{CreateTokenArgs, TokenCommand};
use crate::failure::Failure;
use crate::output::Output;

/// Digits of a token's digest in the name that it gets where none is given.
const NAME_DIGITS: usize = 12;

/// Makes what is asked for and keeps nothing of it.
pub(crate) fn run(command: &TokenCommand, output: &mut Output) -> Result<(), Failure> {
    let TokenCommand::Create(args) = command;
    create(args, output)
}

fn create(args: &CreateTokenArgs, output: &mut Output) -> Result<(), Failure> {
    let token = Token::generate()
        .map_err(|error| Failure::Unavailable(format!("the system has no random numbers: {error}")))?;
    let digest = token.digest();
    let id = args.id.clone().unwrap_or_else(|| digest.to_string()[..NAME_DIGITS].to_owned());
    validate_token_id(&id).map_err(|error| Failure::Usage(format!("--id {error}")))?;
    let grant =
        Grant { id, digest, tenants: tenants(&args.tenants)?, rights: args.rights.iter().copied().collect() };
    let line = grant.to_line();
    if output.is_json() {
        return output.json(&json!({ "id": grant.id, "token": token.reveal(), "line": line }));
    }
    output.pairs(&[
        ("token, for the client; it is shown this once", token.reveal().to_owned()),
        ("line for QIM_TOKENS_FILE", line),
    ])
}

fn tenants(names: &[String]) -> Result<Tenants, Failure> {
    if names == ["*"] {
        return Ok(Tenants::All);
    }
    let tenant = |name: &String| match name.as_str() {
        "" | "*" => Err(Failure::Usage("--tenant names tenants, or is * alone for all of them".to_owned())),
        name => TenantId::new(name).map_err(|error| Failure::Usage(format!("--tenant {error}"))),
    };
    names.iter().map(tenant).collect::<Result<_, _>>().map(Tenants::Some)
}
