-- Claims the oldest notice of each queue whose turn it is. A claim ends with its result, or after a while by itself.
--
-- KEYS[1]  when each queue's oldest notice is due (`{outbox}:q`)
-- KEYS[2]  claims: `ACCOUNT:CHANNEL` → number of the claim and failed attempts, as `CLAIM:ATTEMPTS` (`{outbox}:c`)
-- ARGV[1]  the time in ms, or '' for this server's clock
-- ARGV[2]  maximum number of notices to claim
-- ARGV[3]  duration of a claim in ms
-- returns  four strings for each claimed notice: queue, notice, claim, failed attempts
--
-- Atomic because two processes must not claim the same notice. The lists (`{outbox}:l:ACCOUNT:CHANNEL`) are derived, not declared
-- in KEYS, which is safe in a Cluster because they have the same hash tag.

local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
-- Damaged claims are forgotten, and a value that is not a list is removed: an error would end the delivery to all accounts.
local last = redis.pcall('HGET', KEYS[2], '')
if last and not (type(last) == 'string' and #last < 16 and string.match(last, '^%d+$')) then redis.call('DEL', KEYS[2]) end
local lists, claimed = string.sub(KEYS[1], 1, -2) .. 'l:', {}
for _, queue in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[2])) do
  local notice = redis.pcall('LINDEX', lists .. queue, 0)
  if type(notice) == 'string' then
    local attempts = string.match(redis.call('HGET', KEYS[2], queue) or '', ':(%d+)$') or '0'
    local claim = string.format('%.0f', redis.call('HINCRBY', KEYS[2], '', 1))
    redis.call('HSET', KEYS[2], queue, claim .. ':' .. attempts)
    redis.call('ZADD', KEYS[1], now + tonumber(ARGV[3]), queue)
    for _, part in ipairs({ queue, notice, claim, attempts }) do claimed[#claimed + 1] = part end
  else
    if notice then redis.call('DEL', lists .. queue) end
    redis.call('ZREM', KEYS[1], queue)
  end
end
return claimed
