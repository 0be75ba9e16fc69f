-- Sets a field of an account.
--
-- KEYS[1]  the account (`…:a`)
-- ARGV[1]  the field
-- ARGV[2]  its value, or '' to delete it
-- ARGV[3]  if given, the value that is replaced; '' for none
-- returns  1, -1 if the account does not exist or is being deleted, or -3 if the field has another value by now
--
-- Atomic because a write must not create a deleted account again, nor undo a concurrent one.

if redis.call('HEXISTS', KEYS[1], 'login') == 0 or redis.call('HEXISTS', KEYS[1], 'deleting') == 1 then return -1 end
if ARGV[3] and (redis.call('HGET', KEYS[1], ARGV[1]) or '') ~= ARGV[3] then return -3 end
if ARGV[2] == '' then
  redis.call('HDEL', KEYS[1], ARGV[1])
else
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
end
return 1
