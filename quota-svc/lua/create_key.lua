-- Writes the record, metadata and first event of a new key.
--
-- KEYS[1]  record (`…:k`)
-- KEYS[2]  metadata (`…:m`)
-- KEYS[3]  events (`…:e`)
-- ARGV[1]  the encoded record
-- ARGV[2]  the metadata
-- ARGV[3]  the event's line
-- returns  1 written, or if the key exists: the ID of the account that holds it ('' if its metadata is missing)
--
-- Atomic, so that a key is never partly written. Afterward, the caller checks that the account still has the reservation
-- of a key slot (check_reservations.lua).

if redis.call('EXISTS', KEYS[1]) == 1 then
  -- `pcall`, because damaged metadata can be of any type. Its error is a table.
  local meta = redis.pcall('GET', KEYS[2])
  return type(meta) == 'string' and string.match(meta, '^{"account":"(%x+)"') or ''
end
redis.call('SET', KEYS[1], ARGV[1])
redis.call('SET', KEYS[2], ARGV[2])
redis.call('DEL', KEYS[3])
redis.call('LPUSH', KEYS[3], ARGV[3])
return 1
