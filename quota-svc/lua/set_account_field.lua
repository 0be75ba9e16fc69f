-- Sets a field of an account.
--
-- KEYS[1]  the account (`…:a`)
-- ARGV[1]  the field
-- ARGV[2]  its value, or '' to delete it
-- returns  1, or -1 if the account does not exist or is being deleted
--
-- Atomic because a write must not create a deleted account again.

if redis.call('HEXISTS', KEYS[1], 'login') == 0 or redis.call('HEXISTS', KEYS[1], 'deleting') == 1 then return -1 end
if ARGV[2] == '' then
  redis.call('HDEL', KEYS[1], ARGV[1])
else
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
end
return 1
