-- Creates an account unless its login is taken.
--
-- KEYS[1]  the account (`…:a`)
-- ARGV[1]  the time in ms, or '' for this server's clock
-- ARGV[2]  time of creation in ms, for an import, or '' for now
-- ARGV[3]  login
-- ARGV[4]  credential, or '' for none
-- ARGV[5]  the credential's version
-- ARGV[6]  the contact as JSON, or '' for none
-- ARGV[7]  the standing as JSON, or '' for none
-- returns  the time of creation in ms, or 0 if the login is taken
--
-- Atomic because only one of two concurrent sign-ups with the same login may succeed.

if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
local now = tonumber(ARGV[2]) or tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
redis.call('HSET', KEYS[1], 'login', ARGV[3], 'created', string.format('%.0f', now), 'version', ARGV[5])
if ARGV[4] ~= '' then redis.call('HSET', KEYS[1], 'credential', ARGV[4]) end
if ARGV[6] ~= '' then redis.call('HSET', KEYS[1], 'contact', ARGV[6]) end
if ARGV[7] ~= '' then redis.call('HSET', KEYS[1], 'standing', ARGV[7]) end
return now
