-- Adds a notice to the outbox, unless the account has the same one already.
--
-- KEYS[1]  when each account's oldest notice is due (`{outbox}:q`)
-- KEYS[2]  times of the oldest notices (`{outbox}:t`)
-- KEYS[3]  notices of the account, oldest first (`{outbox}:l:ACCOUNT`)
-- ARGV[1]  account ID
-- ARGV[2]  the notice as JSON
-- ARGV[3]  its time in ms
-- ARGV[4]  maximum number of notices of an account
-- ARGV[5]  maximum number of accounts with notices
-- returns  number of notices that were dropped: 0 or 1
--
-- Atomic because the queue and the lists must agree.

if redis.call('LPOS', KEYS[3], ARGV[2]) then return 0 end
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then
  if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[5]) then return 1 end
  redis.call('ZADD', KEYS[1], 0, ARGV[1])
  redis.call('ZADD', KEYS[2], ARGV[3], ARGV[1])
end
if redis.call('RPUSH', KEYS[3], ARGV[2]) <= tonumber(ARGV[4]) then return 0 end
-- The oldest one may be claimed, so it stays: its claim must find it. The next one goes.
local oldest = redis.call('LPOP', KEYS[3])
redis.call('LPOP', KEYS[3])
redis.call('LPUSH', KEYS[3], oldest)
return 1
