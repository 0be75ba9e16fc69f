-- Adds a session to an account, or tells whether one lives.
--
-- KEYS[1]  the account (`…:a`)    KEYS[2]  its sessions (`…:s`): SHA-256 of the id → when it ends, ms
-- ARGV[1]  the time in ms, or '' for this server's clock    ARGV[2]  SHA-256 of the session's id
-- ARGV[3]  how long it lives in ms, or '' to ask             ARGV[4]  how many may live at once
-- returns  1 added or alive, 0 not alive, -1 no such account
--
-- Why in one script: the number of sessions is bounded, the one that ends first makes room.

if redis.call('EXISTS', KEYS[1]) == 0 or redis.call('HEXISTS', KEYS[1], 'deleting') == 1 then return -1 end
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
if ARGV[3] == '' then
  local ends = tonumber(redis.call('HGET', KEYS[2], ARGV[2]) or 0)
  return ends > now and 1 or 0
end

local all = redis.call('HGETALL', KEYS[2])
local alive, first, latest = 0, nil, now + tonumber(ARGV[3])
for i = 1, #all, 2 do
  local ends = tonumber(all[i + 1])
  if ends <= now then
    redis.call('HDEL', KEYS[2], all[i])
  else
    alive, latest = alive + 1, math.max(latest, ends)
    if not first or ends < first.ends then first = { id = all[i], ends = ends } end
  end
end
if alive >= tonumber(ARGV[4]) then redis.call('HDEL', KEYS[2], first.id) end
redis.call('HSET', KEYS[2], ARGV[2], string.format('%.0f', now + tonumber(ARGV[3])))
redis.call('PEXPIRE', KEYS[2], latest - now)
return 1
