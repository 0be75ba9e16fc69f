-- Replaces an account's credential and revokes its sessions, except those that the caller wants to keep.
--
-- KEYS[1]  the account (`…:a`)
-- KEYS[2]  its sessions (`…:s`)
-- ARGV[1]  expected version of the credential
-- ARGV[2]  the new credential
-- ARGV[3]  SHA-256 of the ID of the session to keep, '' for none, or '*' for all
-- ARGV[4]  expected credential, or '' to check only the version
-- returns  the new version, -1 no such account, -2 the version or the credential is not the expected one
--
-- Atomic because only one of two concurrent changes may succeed, and no other session may outlive the old credential.

if redis.call('EXISTS', KEYS[1]) == 0 or redis.call('HEXISTS', KEYS[1], 'deleting') == 1 then return -1 end
local version = tonumber(redis.call('HGET', KEYS[1], 'version'))
if version ~= tonumber(ARGV[1]) then return -2 end
-- Versions start over when an account is deleted and registered again, so the version alone is not enough.
if ARGV[4] ~= '' and redis.call('HGET', KEYS[1], 'credential') ~= ARGV[4] then return -2 end
redis.call('HSET', KEYS[1], 'credential', ARGV[2], 'version', version + 1)
if ARGV[3] == '*' then return version + 1 end
local expiry = ARGV[3] ~= '' and redis.call('HGET', KEYS[2], ARGV[3])
local ttl = redis.call('PTTL', KEYS[2])
redis.call('DEL', KEYS[2])
if expiry then
  redis.call('HSET', KEYS[2], ARGV[3], expiry)
  if ttl > 0 then redis.call('PEXPIRE', KEYS[2], ttl) end
end
return version + 1
