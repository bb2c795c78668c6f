-- Whose file this is. One statement, and so one look at the file, while another program may be making it.
--
-- Rows: one of (application_id, user_version, number of tables and indexes)
SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema)
FROM pragma_application_id, pragma_user_version
