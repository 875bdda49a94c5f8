#include "server/sessions/redis_connection.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace flash {
namespace {

// To connect, and for the socket to move on: far more than Redis ever takes,
// and no longer than a caller would wait.
constexpr timeval kTimeout = {.tv_sec = 2, .tv_usec = 0};

// A script copies its arguments before anything is heard of it: one second more
// for each so many bytes.
constexpr size_t kBytesPerSecond = size_t{32} << 20;

// Commands are short, so that more are hardly ever at work at once.
constexpr size_t kMaxIdle = 8;

constexpr char kTooLong[] = "it takes too long";

// What sendmsg() takes at once.
constexpr size_t kMaxPieces = 1024;

iovec Piece(std::string_view bytes) {
  return {const_cast<char*>(bytes.data()), bytes.size()};
}

// What is left of `pieces` when their first bytes are sent.
std::span<iovec> After(std::span<iovec> pieces, size_t num_sent) {
  while (!pieces.empty() && num_sent >= pieces[0].iov_len) {
    num_sent -= pieces[0].iov_len;
    pieces = pieces.subspan(1);
  }
  if (!pieces.empty()) {
    pieces[0].iov_base = static_cast<char*>(pieces[0].iov_base) + num_sent;
    pieces[0].iov_len -= num_sent;
  }
  return pieces;
}

// Overwrites the strings of a reply.
void Wipe(redisReply* reply) {
  if (reply->str != nullptr) explicit_bzero(reply->str, reply->len);
  for (size_t i = 0; i < reply->elements; ++i) Wipe(reply->element[i]);
}

absl::Status ErrorOf(const std::string& description, const redisReply& reply) {
  const std::string said(reply.str, reply.len);
  // A script's error has the command's in it.
  if (absl::StrContains(said, "OOM command not allowed")) {
    return absl::ResourceExhaustedError(
        absl::StrCat(description, " is full: ", said));
  }
  return absl::UnavailableError(absl::StrCat(description, ": ", said));
}

}  // namespace

void WipeAndFreeReply::operator()(redisReply* reply) const {
  Wipe(reply);
  freeReplyObject(reply);
}

std::optional<std::string_view> StringOf(const redisReply* reply) {
  if (reply->type != REDIS_REPLY_STRING) return std::nullopt;
  return std::string_view(reply->str, reply->len);
}

absl::StatusOr<std::unique_ptr<RedisConnection>> RedisConnection::Connect(
    const RedisAddress& address) {
  redisContext* context =
      redisConnectWithTimeout(address.host.c_str(), address.port, kTimeout);
  if (context == nullptr) return absl::UnavailableError("no memory");
  std::unique_ptr<RedisConnection> connection(
      new RedisConnection(context, address.Describe()));
  if (context->err != 0) return connection->NoAnswer(context->errstr);
  if (!address.password.empty()) {
    const std::string_view command[] = {"AUTH", address.password};
    const absl::StatusOr<RedisReply> reply = connection->Run(command);
    // Redis may say what it was told.
    if (!reply.ok()) return connection->NoAnswer("it refuses the password");
  }
  const std::string database = absl::StrCat(address.database);
  const std::string_view command[] = {"SELECT", database};
  const absl::StatusOr<RedisReply> reply = connection->Run(command);
  if (!reply.ok()) return reply.status();
  return connection;
}

absl::StatusOr<RedisReply> RedisConnection::Run(
    std::span<const std::string_view> arguments) {
  if (absl::Status status = Send(arguments); !status.ok()) return status;
  void* received = nullptr;
  if (redisGetReply(context_.get(), &received) != REDIS_OK) {
    const bool timed_out = context_->err == REDIS_ERR_IO && errno == EAGAIN;
    return NoAnswer(timed_out ? kTooLong : context_->errstr);
  }
  RedisReply reply(static_cast<redisReply*>(received));
  if (reply->type == REDIS_REPLY_ERROR) return ErrorOf(description_, *reply);
  return reply;
}

bool RedisConnection::HasNews() const {
  pollfd socket = {.fd = context_->fd, .events = POLLIN, .revents = 0};
  return poll(&socket, 1, 0) != 0;
}

// Written here and not by hiredis, which would copy a body first, and would be
// killed by SIGPIPE when the other end goes.
absl::Status RedisConnection::Send(
    std::span<const std::string_view> arguments) {
  std::vector<std::string> lengths;
  size_t num_bytes = 0;
  for (const std::string_view argument : arguments) {
    lengths.push_back(absl::StrCat("\r\n$", argument.size(), "\r\n"));
    num_bytes += argument.size();
  }
  timeval timeout = kTimeout;
  timeout.tv_sec += static_cast<time_t>(num_bytes / kBytesPerSecond);
  if (redisSetTimeout(context_.get(), timeout) != REDIS_OK) {
    return NoAnswer(context_->errstr);
  }
  const std::string count = absl::StrCat("*", arguments.size());
  std::vector<iovec> pieces = {Piece(count)};
  for (size_t i = 0; i < arguments.size(); ++i) {
    pieces.push_back(Piece(lengths[i]));
    pieces.push_back(Piece(arguments[i]));
  }
  pieces.push_back(Piece("\r\n"));

  std::span<iovec> unsent = pieces;
  while (!unsent.empty()) {
    msghdr message = {};
    message.msg_iov = unsent.data();
    message.msg_iovlen = std::min(unsent.size(), kMaxPieces);
    const ssize_t sent = sendmsg(context_->fd, &message, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) return NoAnswer(kTooLong);
    if (sent < 0) return NoAnswer(std::generic_category().message(errno));
    unsent = After(unsent, static_cast<size_t>(sent));
  }
  return absl::OkStatus();
}

absl::Status RedisConnection::NoAnswer(std::string_view why) {
  is_broken_ = true;
  return absl::UnavailableError(
      absl::StrCat(description_, " does not answer: ", std::string(why)));
}

absl::StatusOr<RedisReply> RedisConnections::Run(
    std::span<const std::string_view> arguments) {
  absl::StatusOr<std::unique_ptr<RedisConnection>> connection = Take();
  if (!connection.ok()) return connection.status();
  absl::StatusOr<RedisReply> reply = (*connection)->Run(arguments);
  GiveBack(*std::move(connection));
  return reply;
}

absl::StatusOr<std::unique_ptr<RedisConnection>> RedisConnections::Take() {
  while (true) {
    std::unique_ptr<RedisConnection> connection;
    {
      MutexLock lock(&mutex_);
      if (idle_.empty()) break;
      connection = std::move(idle_.back());
      idle_.pop_back();
    }
    if (!connection->HasNews()) return connection;
  }
  return RedisConnection::Connect(address_);
}

void RedisConnections::GiveBack(std::unique_ptr<RedisConnection> connection) {
  if (connection->is_broken()) return;
  MutexLock lock(&mutex_);
  if (idle_.size() < kMaxIdle) idle_.push_back(std::move(connection));
}

}  // namespace flash
