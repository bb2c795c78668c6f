//! The one list of Lua scripts. Each file opens with its contract: KEYS, ARGV and result.

use super::script::Script;

const SLOT_GUARD: &str = include_str!("../../lua/slot_guard.lua");
const LINEAR_HASHING: &str = include_str!("../../lua/linear_hashing.lua");
const IDLE: &str = include_str!("../../lua/idle.lua");
const CONVERSATION: &str = include_str!("../../lua/conversation.lua");
const PIECES: &str = include_str!("../../lua/pieces.lua");
const FINGERPRINTS: &str = include_str!("../../lua/fingerprints.lua");
const APPENDING: &str = include_str!("../../lua/appending.lua");
const REMOVING: &str = include_str!("../../lua/removing.lua");
const LINEAGE: &str = include_str!("../../lua/lineage.lua");

/// For what gives memory back or costs next to none: runs at the memory limit too, since waiting would make it worse.
const ALSO_AT_THE_MEMORY_LIMIT: &str = "#!lua flags=allow-oom";
const READS_ONLY: &str = "#!lua flags=no-writes";
/// Grows memory: at the memory limit, or where Redis cannot write now, it is refused before it begins.
const GROWS: &str = "#!lua";

/// All scripts, ready to be called.
pub(super) struct Scripts {
    pub(super) commit_messages: Script,
    pub(super) enter_lineage: Script,
    pub(super) restore_messages: Script,
    pub(super) settle_conversation: Script,
    pub(super) vacate_conversation: Script,
    pub(super) pass_barrier: Script,
    pub(super) find_committed: Script,
    pub(super) read_page: Script,
    pub(super) resting: Script,
    pub(super) seek_time: Script,
    pub(super) shard_stats: Script,
    pub(super) waiting_since: Script,
    pub(super) mark_archived: Script,
    pub(super) trim_hot_history: Script,
    pub(super) gc_history_record: Script,
    pub(super) claim_gc: Script,
    pub(super) acquire_lease: Script,
    pub(super) release_lease: Script,
    pub(super) set_aside_conversation: Script,
    pub(super) note: Script,
    pub(super) announce: Script,
    pub(super) reserve_dictionary: Script,
    pub(super) raise_dictionary: Script,
    pub(super) retire_dictionary: Script,
}

impl Scripts {
    pub(super) fn new() -> Self {
        let prelude = [SLOT_GUARD, LINEAR_HASHING, IDLE, CONVERSATION, PIECES, FINGERPRINTS].join("\n");
        let script = |flags: &str, act: &str| Script::new(format!("{flags}\n{prelude}\n{act}"));
        // Making a function takes its time in each call, so that what few scripts use is in those only.
        let in_lineage = |flags: &str, act: &str| script(flags, &[LINEAGE, APPENDING, act].join("\n"));
        let shrinks = |act: &str| script(ALSO_AT_THE_MEMORY_LIMIT, act);
        let reads = |act: &str| script(READS_ONLY, act);
        let reads_in_lineage = |act: &str| reads(&[LINEAGE, act].join("\n"));
        Self {
            commit_messages: in_lineage(GROWS, include_str!("../../lua/commit_messages.lua")),
            enter_lineage: in_lineage(ALSO_AT_THE_MEMORY_LIMIT, include_str!("../../lua/enter_lineage.lua")),
            pass_barrier: in_lineage(ALSO_AT_THE_MEMORY_LIMIT, include_str!("../../lua/pass_barrier.lua")),
            // What was acknowledged was promised.
            restore_messages: in_lineage(
                ALSO_AT_THE_MEMORY_LIMIT,
                include_str!("../../lua/restore_messages.lua"),
            ),
            settle_conversation: in_lineage(
                ALSO_AT_THE_MEMORY_LIMIT,
                include_str!("../../lua/settle_conversation.lua"),
            ),
            vacate_conversation: in_lineage(
                ALSO_AT_THE_MEMORY_LIMIT,
                &[REMOVING, include_str!("../../lua/vacate_conversation.lua")].join("\n"),
            ),
            find_committed: reads(include_str!("../../lua/find_committed.lua")),
            read_page: reads_in_lineage(include_str!("../../lua/read_page.lua")),
            // Each newest page calls it: the rest of the prelude takes longer than it does.
            resting: Script::new(
                [READS_ONLY, LINEAR_HASHING, IDLE, LINEAGE, include_str!("../../lua/resting.lua")].join("\n"),
            ),
            seek_time: reads_in_lineage(include_str!("../../lua/seek_time.lua")),
            shard_stats: reads(include_str!("../../lua/shard_stats.lua")),
            waiting_since: Script::new([READS_ONLY, include_str!("../../lua/waiting_since.lua")].join("\n")),
            mark_archived: shrinks(&[LINEAGE, include_str!("../../lua/mark_archived.lua")].join("\n")),
            trim_hot_history: shrinks(&[REMOVING, include_str!("../../lua/trim_hot_history.lua")].join("\n")),
            gc_history_record: shrinks(include_str!("../../lua/gc_history_record.lua")),
            claim_gc: shrinks(include_str!("../../lua/claim_gc.lua")),
            acquire_lease: shrinks(include_str!("../../lua/acquire_lease.lua")),
            release_lease: shrinks(include_str!("../../lua/release_lease.lua")),
            set_aside_conversation: shrinks(include_str!("../../lua/set_aside_conversation.lua")),
            note: shrinks(include_str!("../../lua/note.lua")),
            announce: shrinks(&[LINEAGE, include_str!("../../lua/announce.lua")].join("\n")),
            reserve_dictionary: shrinks(include_str!("../../lua/reserve_dictionary.lua")),
            raise_dictionary: shrinks(include_str!("../../lua/raise_dictionary.lua")),
            retire_dictionary: shrinks(include_str!("../../lua/retire_dictionary.lua")),
        }
    }
}
