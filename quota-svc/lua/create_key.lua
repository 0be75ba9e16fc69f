-- Writes the record, metadata and first event of a new key.
--
-- KEYS[1]  record (`…:k`)
-- KEYS[2]  metadata (`…:m`)
-- KEYS[3]  events (`…:e`)
-- ARGV[1]  time of the reservation, ms
-- ARGV[2]  the time in ms, or '' for this server's clock
-- ARGV[3]  the encoded record
-- ARGV[4]  the event's line
-- ARGV[5…] fields and values of the metadata
-- returns  1 written, 2 already exists, 0 not written because the reservation is over 30 s old
--
-- Atomic, so that a key is never partly written. The account's reservation of a key slot must be younger than 30 s:
-- listing the account's keys removes reservations older than 60 s that have no record (RESERVATION_MS in src/store.rs).

local now = tonumber(ARGV[2])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
if now - tonumber(ARGV[1]) > 30000 then return 0 end
if redis.call('EXISTS', KEYS[1]) == 1 then return 2 end
redis.call('SET', KEYS[1], ARGV[3])
redis.call('HSET', KEYS[2], unpack(ARGV, 5))
redis.call('DEL', KEYS[3])
redis.call('LPUSH', KEYS[3], ARGV[4])
return 1
