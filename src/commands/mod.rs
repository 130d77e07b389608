//! The commands `CARD.*`, each with its documentation beside its code.

mod create;
mod del;
mod get;
mod info;
mod json;
mod load;
mod query;
mod scan;
mod set;
mod stage;

use std::ffi::CStr;

use card_table::Id;

use crate::redis::call::Call;
use crate::redis::command::register;
use crate::redis::failure::Failure;
use crate::redis::raw;

pub use stage::{add, add_patch, begin, begin_patch, commit, commit_options, discard_patch};

/// Commands that are also sent, to replicas and into an AOF.
pub const CREATE: &CStr = c"card.create";
pub const STAGE: &CStr = c"card.stage";
pub const COMMIT: &CStr = c"card.commit";
pub const UNLINK: &CStr = c"UNLINK";

/// The ids that follow the key.
fn ids<'a>(call: &Call<'a>) -> Result<Vec<Id<'a>>, Failure> {
    Ok(call.arguments(1).iter().map(|id| Id::parse(id.bytes())).collect::<Result<_, _>>()?)
}

pub fn register_all(ctx: *mut raw::RedisModuleCtx) -> Result<(), String> {
    register::<create::Create>(ctx)?;
    register::<set::Set>(ctx)?;
    register::<set::MultiSet>(ctx)?;
    register::<get::Get>(ctx)?;
    register::<get::MultiGet>(ctx)?;
    register::<get::Len>(ctx)?;
    register::<del::Del>(ctx)?;
    register::<scan::Scan>(ctx)?;
    register::<info::Info>(ctx)?;
    register::<json::Json>(ctx)?;
    register::<query::Query>(ctx)?;
    register::<load::Load>(ctx)?;
    register::<stage::Stage>(ctx)?;
    register::<stage::Commit>(ctx)
}
