-- Replaces an account's credential and ends its sessions but one.
--
-- KEYS[1]  the account (`…:a`)    KEYS[2]  its sessions (`…:s`)
-- ARGV[1]  the version the change was made from    ARGV[2]  the credential    ARGV[3]  the session that stays, or ''
-- returns  the new version, -1 no such account, -2 the version is another
--
-- Why in one script: a password that is changed must end the old one's sessions in the same moment.

if redis.call('EXISTS', KEYS[1]) == 0 or redis.call('HEXISTS', KEYS[1], 'deleting') == 1 then return -1 end
local version = tonumber(redis.call('HGET', KEYS[1], 'version'))
if version ~= tonumber(ARGV[1]) then return -2 end
redis.call('HSET', KEYS[1], 'credential', ARGV[2], 'version', version + 1)
local expires = ARGV[3] ~= '' and redis.call('HGET', KEYS[2], ARGV[3])
local life = redis.call('PTTL', KEYS[2])
redis.call('DEL', KEYS[2])
if expires then
  redis.call('HSET', KEYS[2], ARGV[3], expires)
  if life > 0 then redis.call('PEXPIRE', KEYS[2], life) end
end
return version + 1
