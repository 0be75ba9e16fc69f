# Starts the store for docker-compose.yaml. Passes the users on standard input, so that the hashes of their passwords are
# neither on a command line nor in a file. The user of the dashboard's quota-svc is called `default`, because earlier
# versions had only that one. docs/redis.md explains the permissions.
set -eu
hash() {
  [ -s "/run/secrets/$1" ] || { echo "/run/secrets/$1 is missing or empty" >&2; exit 1; }
  tr -d '\r\n' <"/run/secrets/$1" | sha256sum | cut -d ' ' -f 1
}
full=$(hash store-password)
lookup=$(hash store-lookup-password)
exec valkey-server --dir /data --appendonly yes --appendfsync everysec --save '' --maxmemory-policy noeviction - <<EOF
user default reset on #$full ~ipl:2:* resetchannels -@all +evalsha +eval +time +ping +info +wait +role +select +get +set +getrange +setrange +strlen +exists +del +hget +hset +hdel +hgetall +sadd +srem +sscan +scard +lpush +lpushx +rpush +rpop +lrem +lset +lpos +ltrim +lrange +zadd +zrem +zcard +zrangebyscore +cluster|slots +asking +waitaof
user lookup reset on #$lookup ~ipl:2:*:k ~ipl:2:*:n ~ipl:2:{demo}:d resetchannels -@all +evalsha +eval +time +ping +info +role +select +get +set +getrange +setrange +lpushx +rpush +rpop +cluster|slots +asking
EOF
