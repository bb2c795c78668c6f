-- Says for ever that a deployment has begun: a conversation without names, which no real one is.
INSERT INTO conversations (tenant, conversation, high_water) VALUES ('', '', 0) ON CONFLICT DO NOTHING
