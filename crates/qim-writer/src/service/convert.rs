use qim_core::{RetentionClass, UnixMillis};
use qim_proto::v1;
use qim_store::hot::Committed;

/// The class of this number of the API; `None` for one it does not have.
pub(super) fn class(number: i32) -> Option<RetentionClass> {
    Some(match v1::RetentionClass::try_from(number).ok()? {
        v1::RetentionClass::Ephemeral24h => RetentionClass::Ephemeral24h,
        v1::RetentionClass::Unspecified | v1::RetentionClass::Default => RetentionClass::Default,
        v1::RetentionClass::ComplianceHold => RetentionClass::ComplianceHold,
        v1::RetentionClass::TenantCustom => RetentionClass::TenantCustom,
    })
}

pub(super) fn class_number(class: RetentionClass) -> i32 {
    let class = match class {
        RetentionClass::Ephemeral24h => v1::RetentionClass::Ephemeral24h,
        RetentionClass::Default => v1::RetentionClass::Default,
        RetentionClass::ComplianceHold => v1::RetentionClass::ComplianceHold,
        RetentionClass::TenantCustom => v1::RetentionClass::TenantCustom,
    };
    class.into()
}

pub(super) fn committed(committed: &Committed) -> v1::Committed {
    v1::Committed {
        seq: committed.seq,
        duplicate: committed.duplicate,
        created_at_ms: committed.dates.map(|dates| dates.created_at.as_i64()),
        expires_at_ms: committed.dates.and_then(|dates| dates.expires_at).map(UnixMillis::as_i64),
    }
}
