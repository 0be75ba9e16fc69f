-- Reserves places for keys in an account, so that it never holds more than it may.
--
-- KEYS[1]  the account (`…:a`)      KEYS[2]  its places (`…:p`): key id → when it was reserved
-- ARGV[1]  how many places there are    ARGV[2]  the time in ms, or '' for this server's clock
-- ARGV[3…] the ids of the keys
-- returns  the time in ms (-1: no such account), then for each id 1 reserved, 2 it has a place, 0 none is left
--
-- Why in one script: fifty creations at once must not find the same last place free. The record itself lives in
-- another slot of a Cluster and is written afterwards (create_key.lua).

if redis.call('EXISTS', KEYS[1]) == 0 or redis.call('HEXISTS', KEYS[1], 'deleting') == 1 then return { -1 } end
local now = tonumber(ARGV[2])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local answer, taken = { now }, redis.call('HLEN', KEYS[2])
for i = 3, #ARGV do
  if redis.call('HEXISTS', KEYS[2], ARGV[i]) == 1 then
    answer[i - 1] = 2
  elseif taken < tonumber(ARGV[1]) then
    redis.call('HSET', KEYS[2], ARGV[i], string.format('%.0f', now))
    answer[i - 1], taken = 1, taken + 1
  else
    answer[i - 1] = 0
  end
end
return answer
