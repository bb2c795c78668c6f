-- Schema version 2, from version 1. Runs inside a transaction that then sets user_version.
--
-- dictionaries  what payloads were compressed with: `dictionary` as qim-core encodes it, with its checksum;
--               `needed_until` is when the last record that needs it expires, ms, or later; 0 where none was noted
CREATE TABLE dictionaries (
  id INTEGER PRIMARY KEY,
  dictionary BLOB NOT NULL,
  needed_until INTEGER NOT NULL
) STRICT;
