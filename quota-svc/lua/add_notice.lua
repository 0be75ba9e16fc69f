-- Adds a notice to the outbox, unless its queue has the same one already.
--
-- KEYS[1]  when each queue's oldest notice is due (`{outbox}:q`)
-- KEYS[2]  notices of the queue, oldest first (`{outbox}:l:ACCOUNT:CHANNEL`)
-- ARGV[1]  the time in ms, or '' for this server's clock
-- ARGV[2]  the queue, as `ACCOUNT:CHANNEL`
-- ARGV[3]  the notice as JSON
-- ARGV[4]  maximum number of notices of a queue
-- ARGV[5]  maximum number of queues with notices
-- returns  number of notices that were dropped: 0 or 1
--
-- Atomic because queues and lists must agree.

local position = redis.pcall('LPOS', KEYS[2], ARGV[3])
if type(position) == 'number' then return 0 end
-- A value that is not a list is replaced: an error would end the delivery to all accounts.
if position then redis.call('DEL', KEYS[2]) end
if not redis.call('ZSCORE', KEYS[1], ARGV[2]) then
  if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[5]) then return 1 end
  local now = tonumber(ARGV[1])
  if not now then
    local time = redis.call('TIME')
    now = time[1] * 1000 + math.floor(time[2] / 1000)
  end
  redis.call('ZADD', KEYS[1], now, ARGV[2])
end
if redis.call('RPUSH', KEYS[2], ARGV[3]) <= tonumber(ARGV[4]) then return 0 end
-- The oldest one may be claimed, so it stays: its claim must find it. The next one goes.
local oldest = redis.call('LPOP', KEYS[2])
redis.call('LPOP', KEYS[2])
redis.call('LPUSH', KEYS[2], oldest)
return 1
