-- Announces an event of a key. The quota-svc of dashboard-api, which may read accounts, makes a notice of it.
--
-- KEYS[1]  announcements of the key's shard (`…:n`)
-- ARGV[1]  the notice as JSON
-- ARGV[2]  time of the announcement in ms
-- ARGV[3]  maximum number of announcements
-- returns  number of announcements that were dropped: 0 or 1
--
-- Atomic because the number of announcements is bounded.

if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[3]) then return 1 end
redis.call('ZADD', KEYS[1], 'NX', ARGV[2], ARGV[1])
return 0
