-- Ends a claim: removes its notice, or sets the time of the next attempt.
--
-- KEYS[1]  when each queue's oldest notice is due (`{outbox}:q`)
-- KEYS[2]  notices of the queue, oldest first (`{outbox}:l:ACCOUNT:CHANNEL`)
-- KEYS[3]  claims (`{outbox}:c`)
-- ARGV[1]  the time in ms, or '' for this server's clock
-- ARGV[2]  the queue, as `ACCOUNT:CHANNEL`
-- ARGV[3]  number of the claim
-- ARGV[4]  time until the next attempt in ms, or '' to remove the notice
-- returns  1, or 0 if the claim is no longer valid: another process has claimed the notice
--
-- Atomic because queues, lists and claims must agree.

local claim, attempts = string.match(redis.call('HGET', KEYS[3], ARGV[2]) or '', '^(%d+):(%d+)$')
if claim ~= ARGV[3] then return 0 end
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
if ARGV[4] ~= '' then
  redis.call('HSET', KEYS[3], ARGV[2], '0:' .. string.format('%.0f', attempts + 1))
  redis.call('ZADD', KEYS[1], now + tonumber(ARGV[4]), ARGV[2])
  return 1
end
redis.call('LPOP', KEYS[2])
redis.call('HDEL', KEYS[3], ARGV[2])
if redis.call('EXISTS', KEYS[2]) == 1 then
  redis.call('ZADD', KEYS[1], now, ARGV[2])
else
  redis.call('ZREM', KEYS[1], ARGV[2])
end
return 1
