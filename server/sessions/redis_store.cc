#include "server/sessions/redis_store.h"

#include <algorithm>
#include <set>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/sessions/blob_name.h"
#include "server/sessions/body.h"
#include "server/sessions/store_errors.h"

namespace flash {
namespace {

constexpr std::string_view kPrefix = "flash:";
constexpr int64_t kMaxBodyBytes = int64_t{512} << 20;

// How many keys Redis looks at in one go, between which it serves others.
constexpr int kMaxScanned = 1000;

// The scripts that change a blob. All begin with kBegin and end with kEnd.
//   KEYS[1]  the blob
//   ARGV[1]  the version that is expected, or ""
//   ARGV[2]  a version greater than any of a blob of that name that was deleted
//   ARGV[3]  when it expires, in milliseconds since 1970, or ""
// They return the version that was there ("0": no blob; "damaged") and the new
// one, or "" if nothing was changed.
constexpr char kBegin[] = R"(
  local v = redis.pcall('HGET', KEYS[1], 'v')
  if not v and redis.call('EXISTS', KEYS[1]) == 0 then
    v = '0'
  elseif type(v) ~= 'string' or not string.match(v, '^[1-9]%d*$') then
    v = 'damaged'
  end
  if ARGV[1] ~= '' and ARGV[1] ~= v then return {v, ''} end
  local new = ARGV[2]
  if v ~= 'damaged' then
    new = string.format('%.0f', math.max(tonumber(v) + 1, tonumber(new)))
  end
)";
constexpr char kEnd[] = R"(
  if ARGV[3] == '' then
    redis.call('PERSIST', KEYS[1])
  else
    redis.call('PEXPIREAT', KEYS[1], ARGV[3])
  end
  return {v, new}
)";
// ARGV[4], [5] and [6]: head, bytes of the body, body.
constexpr char kPut[] = R"(
  if v == 'damaged' then redis.call('UNLINK', KEYS[1]) end
  redis.call('HSET', KEYS[1], 'v', new, 'h', ARGV[4], 'n', ARGV[5],
             'b', ARGV[6])
)";
// ARGV[4]: head.
constexpr char kPutHead[] = R"(
  if v == '0' then return {v, ''} end
  redis.call('HSET', KEYS[1], 'v', new, 'h', ARGV[4])
)";
constexpr char kDelete[] = R"(
  if v == '0' then return {v, ''} end
  redis.call('UNLINK', KEYS[1])
)";

// Version, head and bytes of the body of each of KEYS.
constexpr char kReadHeads[] = R"(
  local heads = {}
  for i, key in ipairs(KEYS) do
    local head = redis.pcall('HMGET', key, 'v', 'h', 'n')
    if head.err then head = {} end
    heads[i] = head
  end
  return heads
)";

std::string KeyOf(std::string_view name) {
  return absl::StrCat(std::string(kPrefix), std::string(name));
}

absl::Status Damaged(std::string_view name) {
  return absl::DataLossError(absl::StrCat(
      std::string(name), ": Redis has something else under its key"));
}

// Reads a SCAN's reply. False if it is something else.
bool ParseScan(const redisReply* reply, std::string* cursor,
               std::set<std::string>* keys) {
  if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2) return false;
  const std::optional<std::string_view> next = StringOf(reply->element[0]);
  const redisReply& found = *reply->element[1];
  if (!next || found.type != REDIS_REPLY_ARRAY) return false;
  *cursor = *next;
  for (size_t i = 0; i < found.elements; ++i) {
    if (const auto key = StringOf(found.element[i])) keys->emplace(*key);
  }
  return true;
}

std::optional<int64_t> NumberOf(const redisReply* reply) {
  const std::optional<std::string_view> text = StringOf(reply);
  int64_t number = 0;
  if (!text || !absl::SimpleAtoi(std::string(*text), &number)) {
    return std::nullopt;
  }
  return number;
}

// The head in a reply whose first elements are version, head and bytes of the
// body; or nothing, if that is not what they are.
std::optional<BlobStore::Head> HeadOf(const redisReply* reply) {
  if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 3) {
    return std::nullopt;
  }
  const std::optional<int64_t> version = NumberOf(reply->element[0]);
  const std::optional<std::string_view> head = StringOf(reply->element[1]);
  const std::optional<int64_t> body_bytes = NumberOf(reply->element[2]);
  if (!version || !head || !body_bytes) return std::nullopt;
  return BlobStore::Head{std::string(*head), *version, *body_bytes};
}

// Whether an HMGET has found no field.
bool IsNothing(const redisReply* reply) {
  return reply->type == REDIS_REPLY_ARRAY &&
         std::all_of(reply->element, reply->element + reply->elements,
                     [](const redisReply* field) {
                       return field->type == REDIS_REPLY_NIL;
                     });
}

}  // namespace

absl::StatusOr<std::unique_ptr<RedisStore>> RedisStore::Open(
    RedisAddress address) {
  std::unique_ptr<RedisStore> store(new RedisStore(std::move(address)));
  const std::string_view command[] = {"PING"};
  const absl::StatusOr<RedisReply> reply = store->connections_.Run(command);
  if (!reply.ok()) return reply.status();
  return store;
}

absl::StatusOr<BlobStore::Found> RedisStore::Get(std::string_view name) {
  const absl::StatusOr<RedisReply> reply = Read(name, {"v", "h", "n", "b"});
  if (!reply.ok()) return reply.status();
  std::optional<Head> head = HeadOf(reply->get());
  if (!head) return Damaged(name);
  const std::optional<std::string_view> body = StringOf((*reply)->element[3]);
  if (!body || static_cast<int64_t>(body->size()) != head->body_bytes) {
    return Damaged(name);
  }
  return Found{{std::move(head->head), MakeBody(std::string(*body))},
               head->version};
}

absl::StatusOr<BlobStore::Head> RedisStore::GetHead(std::string_view name) {
  const absl::StatusOr<RedisReply> reply = Read(name, {"v", "h", "n"});
  if (!reply.ok()) return reply.status();
  std::optional<Head> head = HeadOf(reply->get());
  if (!head) return Damaged(name);
  return *std::move(head);
}

absl::StatusOr<int64_t> RedisStore::Put(std::string_view name, const Blob& blob,
                                        std::optional<int64_t> expected,
                                        absl::Time expires) {
  const auto body_bytes = static_cast<int64_t>(blob.body->size());
  if (body_bytes > kMaxBodyBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat(Describe(), " takes bodies of at most ", kMaxBodyBytes,
                     " bytes, not of ", body_bytes));
  }
  const std::string size = absl::StrCat(body_bytes);
  return Change(kPut, name, expected, expires, {blob.head, size, *blob.body});
}

absl::StatusOr<int64_t> RedisStore::PutHead(std::string_view name,
                                            std::string_view head,
                                            int64_t expected,
                                            absl::Time expires) {
  return Change(kPutHead, name, expected, expires, {head});
}

absl::Status RedisStore::Delete(std::string_view name,
                                std::optional<int64_t> expected) {
  return Change(kDelete, name, expected, absl::InfiniteFuture(), {}).status();
}

absl::StatusOr<BlobStore::Page> RedisStore::List(std::string_view folder,
                                                 std::string_view from,
                                                 int limit) {
  if (absl::Status status = CheckFolderName(folder); !status.ok()) {
    return status;
  }
  uint64_t place = 0;
  std::string cursor = from.empty() ? "0" : std::string(from);
  if (!absl::SimpleAtoi(cursor, &place)) return NoSuchPage(from);
  // No character of a name means anything in a pattern.
  const std::string pattern = absl::StrCat(KeyOf(folder), "/*");
  Page page;
  int num_scanned = std::min(limit, kMaxScanned);
  do {
    const std::string count = absl::StrCat(num_scanned);
    const std::string_view command[] = {"SCAN",  cursor,  "MATCH",
                                        pattern, "COUNT", count};
    const absl::StatusOr<RedisReply> reply = connections_.Run(command);
    if (!reply.ok()) return reply.status();
    std::set<std::string> keys;  // Redis may say one twice
    if (!ParseScan(reply->get(), &cursor, &keys)) return NoSuchPage(from);
    absl::Status status = AppendHeads(keys, &page.entries);
    if (!status.ok()) return status;
    // Most keys are of other folders.
    num_scanned = std::min(2 * num_scanned, kMaxScanned);
  } while (cursor != "0" && static_cast<int>(page.entries.size()) < limit);
  if (cursor != "0") page.next = cursor;
  return page;
}

absl::StatusOr<RedisReply> RedisStore::Read(
    std::string_view name, std::initializer_list<std::string_view> fields) {
  if (absl::Status status = CheckBlobName(name); !status.ok()) return status;
  const std::string key = KeyOf(name);
  std::vector<std::string_view> command = {"HMGET", key};
  command.insert(command.end(), fields);
  absl::StatusOr<RedisReply> reply = connections_.Run(command);
  if (!reply.ok()) {
    return absl::StrContains(reply.status().message(), "WRONGTYPE")
               ? Damaged(name)
               : reply.status();
  }
  if (IsNothing(reply->get())) return NoSuchBlob(name);
  return reply;
}

absl::StatusOr<int64_t> RedisStore::Change(
    const char* script, std::string_view name, std::optional<int64_t> expected,
    absl::Time expires, std::initializer_list<std::string_view> arguments) {
  if (absl::Status status = CheckBlobName(name); !status.ok()) return status;
  const std::string whole_script = absl::StrCat(kBegin, script, kEnd);
  const std::string key = KeyOf(name);
  const std::string before = expected ? absl::StrCat(*expected) : "";
  const std::string least = absl::StrCat(absl::ToUnixMicros(absl::Now()));
  const std::string when =
      expires == absl::InfiniteFuture()
          ? ""
          : absl::StrCat(std::max<int64_t>(absl::ToUnixMillis(expires), 1));
  std::vector<std::string_view> command = {"EVAL", whole_script, "1", key,
                                           before, least,        when};
  command.insert(command.end(), arguments);
  const absl::StatusOr<RedisReply> reply = connections_.Run(command);
  if (!reply.ok()) return reply.status();
  const redisReply& answer = **reply;
  if (answer.type != REDIS_REPLY_ARRAY || answer.elements != 2) {
    return Damaged(name);
  }
  if (const std::optional<int64_t> version = NumberOf(answer.element[1])) {
    return *version;
  }
  const std::optional<int64_t> found = NumberOf(answer.element[0]);
  if (!found) return Damaged(name);
  if (*found == 0 && script != kPut) return NoSuchBlob(name);
  return OtherVersion(name, expected.value_or(0), *found);
}

absl::Status RedisStore::AppendHeads(const std::set<std::string>& keys,
                                     std::vector<Entry>* entries) {
  if (keys.empty()) return absl::OkStatus();
  const std::string count = absl::StrCat(keys.size());
  std::vector<std::string_view> command = {"EVAL", kReadHeads, count};
  command.insert(command.end(), keys.begin(), keys.end());
  const absl::StatusOr<RedisReply> reply = connections_.Run(command);
  if (!reply.ok()) return reply.status();
  size_t i = 0;
  for (const std::string& key : keys) {
    if (i == (*reply)->elements) break;
    // Those that are gone, or are something else, are left out.
    std::optional<Head> head = HeadOf((*reply)->element[i++]);
    if (!head) continue;
    entries->push_back({key.substr(kPrefix.size()), *std::move(head)});
  }
  return absl::OkStatus();
}

}  // namespace flash
