-- Adds a session to an account, or checks whether one is active.
--
-- KEYS[1]  the account (`…:a`)
-- KEYS[2]  its sessions (`…:s`): SHA-256 of the session ID → expiry, ms
-- ARGV[1]  the time in ms, or '' for this server's clock
-- ARGV[2]  SHA-256 of the session ID
-- ARGV[3]  TTL in ms, or '' to check whether the session is active
-- ARGV[4]  maximum number of active sessions
-- ARGV[5]  the credential that was verified, or '' to add the session whatever the credential is
-- returns  1 added or active, 0 not active, -1 no such account, -2 the credential is not the verified one
--
-- Atomic because a session must not outlive the credential that it was created with: a password change between the
-- check and the write would not revoke it. Also because concurrent sign-ins must not exceed the maximum. At the maximum,
-- the session that expires first is revoked.

if redis.call('EXISTS', KEYS[1]) == 0 or redis.call('HEXISTS', KEYS[1], 'deleting') == 1 then return -1 end
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
if ARGV[3] == '' then
  local expiry = tonumber(redis.call('HGET', KEYS[2], ARGV[2]) or 0)
  return expiry > now and 1 or 0
end

if ARGV[5] ~= '' and redis.call('HGET', KEYS[1], 'credential') ~= ARGV[5] then return -2 end
local all = redis.call('HGETALL', KEYS[2])
local active, first, latest = 0, nil, now + tonumber(ARGV[3])
for i = 1, #all, 2 do
  local expiry = tonumber(all[i + 1])
  if expiry <= now then
    redis.call('HDEL', KEYS[2], all[i])
  else
    active, latest = active + 1, math.max(latest, expiry)
    if not first or expiry < first.expiry then first = { id = all[i], expiry = expiry } end
  end
end
if active >= tonumber(ARGV[4]) then redis.call('HDEL', KEYS[2], first.id) end
redis.call('HSET', KEYS[2], ARGV[2], string.format('%.0f', now + tonumber(ARGV[3])))
redis.call('PEXPIRE', KEYS[2], latest - now)
return 1
