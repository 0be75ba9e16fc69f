-- Writes a change of a key, and adds its event.
--
-- KEYS[1]  record (`…:k`)
-- KEYS[2]  metadata (`…:m`)
-- KEYS[3]  events (`…:e`)
-- ARGV[1]  the first bytes of the record, as they were read (HEAD_BYTES in src/domain/record/codec.rs)
-- ARGV[2]  their new values
-- ARGV[3]  the metadata, as it was read
-- ARGV[4]  the new metadata
-- ARGV[5]  1 to clear the burst window
-- ARGV[6]  the event's line, or '' if the change has no effect: then nothing is written
-- returns  1 changed, 0 the key is no longer as it was read, or does not exist: nothing was written
--
-- Atomic because a charge must see the new state together with the cleared burst window, and because state, owner and
-- name must not change between the read and the write. StoredKey::apply in src/domain/key.rs decides what changes.

if redis.call('GETRANGE', KEYS[1], 0, #ARGV[1] - 1) ~= ARGV[1] then return 0 end
if redis.call('GET', KEYS[2]) ~= ARGV[3] then return 0 end
if ARGV[6] == '' then return 1 end
redis.call('SETRANGE', KEYS[1], 0, ARGV[2])
-- Latest arrival, burst limit, capacity, length and head.
if ARGV[5] == '1' then redis.call('SETRANGE', KEYS[1], 28, string.rep('\0', 18)) end
redis.call('SET', KEYS[2], ARGV[4])
redis.call('LPUSH', KEYS[3], ARGV[6])
redis.call('LTRIM', KEYS[3], 0, 99)
return 1
