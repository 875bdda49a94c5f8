#include "client/stream_progress.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"

namespace flash {
namespace {

// 128 bits of chance.
std::string RandomId() {
  std::random_device random;
  std::string id = "call-";
  for (int i = 0; i < 4; ++i) {
    absl::StrAppend(&id, absl::Hex(uint32_t{random()}, absl::kZeroPad8));
  }
  return id;
}

// Cuts from `text`, which begins at `offset`, what comes before `told`, and
// moves both to behind it. `told` is always the end of a character, so what is
// left is valid UTF-8. INTERNAL if text is missing between the two.
absl::Status CutTold(uint64_t& told, uint64_t& offset, std::string& text) {
  if (offset > told) {
    return absl::InternalError(absl::StrCat("the stream has text from byte ",
                                            offset, " on, but none from byte ",
                                            told, " on"));
  }
  text.erase(0, std::min<uint64_t>(told - offset, text.size()));
  offset = told;
  told += text.size();
  return absl::OkStatus();
}

// FAILED_PRECONDITION: the two streams are not of one answer.
template <typename T>
absl::Status Differs(const std::string& what, const T& was, const T& is) {
  return absl::FailedPreconditionError(
      absl::StrCat("the answer cannot be gone on with here: its ", what, " is ",
                   is, " and was ", was));
}

}  // namespace

StreamProgress::StreamProgress(v1::GenerateRequest request)
    : request_(std::move(request)) {
  if (!ClaimsSession() || !request_.request_id().empty()) return;
  request_.set_request_id(RandomId());
  has_own_id_ = true;
}

v1::GenerateRequest StreamProgress::BeginStream(
    std::chrono::milliseconds elapsed) {
  ++num_streams_;
  prompt_bytes_ = 0;
  v1::GenerateRequest request = request_;
  if (!accepted()) {
    // It may have got there all the same.
    if (num_streams_ > 1 && ClaimsSession() && has_own_id_) {
      request.mutable_session()->set_takeover_epoch(0);
    }
    return request;
  }
  request.set_request_id(accepted_->request_id());
  request.mutable_sampling()->set_seed(accepted_->seed());
  v1::Stopping& stopping = *request.mutable_stopping();
  // What another server's default is does not matter.
  stopping.set_max_tokens(accepted_->max_tokens());
  if (stopping.has_time_limit_ms()) {
    const uint64_t used = static_cast<uint64_t>(elapsed.count());
    const uint64_t limit = stopping.time_limit_ms();
    stopping.set_time_limit_ms(limit > used ? limit - used : 1);
  }
  if (has_news()) {
    // The prompt came before the tokens: it has been told.
    request.mutable_response()->clear_echo();
    request.mutable_response()->clear_prompt_logprobs();
    request.clear_prior_output_ids();
    for (const Output& output : outputs_) {
      *request.add_prior_output_ids()->mutable_ids() = {output.ids.begin(),
                                                        output.ids.end()};
    }
  }
  if (ClaimsSession()) {
    request.mutable_session()->set_takeover_epoch(accepted_->session_epoch());
  }
  return request;
}

absl::StatusOr<bool> StreamProgress::Take(v1::GenerateEvent& event) {
  if (event.has_accepted()) return TakeAccepted(event.accepted());
  if (!accepted()) {
    return absl::InternalError("the stream does not begin with `accepted`");
  }
  if (event.has_prompt()) return TakePrompt(*event.mutable_prompt());
  if (event.has_token()) return TakeToken(*event.mutable_token());
  if (event.has_finished()) return TakeFinished(event);
  return num_streams_ == 1;  // one that we do not know
}

std::optional<v1::GenerateEvent> StreamProgress::TakeHeld() {
  return std::exchange(held_, std::nullopt);
}

bool StreamProgress::complete() const {
  return accepted() &&
         std::all_of(outputs_.begin(), outputs_.end(),
                     [](const Output& output) { return output.finished; });
}

uint64_t StreamProgress::num_tokens() const {
  uint64_t count = 0;
  for (const Output& output : outputs_) count += output.ids.size();
  return count;
}

bool StreamProgress::has_news() const {
  uint64_t prior = 0;
  for (const auto& list : request_.prior_output_ids()) prior += list.ids_size();
  return num_tokens() > prior;
}

absl::StatusOr<bool> StreamProgress::TakeAccepted(
    const v1::Accepted& accepted) {
  if (!this->accepted()) {
    accepted_ = accepted;
    outputs_.resize(std::max(accepted.num_outputs(), uint32_t{1}));
    for (int i = 0; i < request_.prior_output_ids_size(); ++i) {
      const auto& ids = request_.prior_output_ids(i).ids();
      if (i == static_cast<int>(outputs_.size())) break;
      outputs_[i].ids = {ids.begin(), ids.end()};
    }
    return true;
  }
  if (accepted.model() != accepted_->model()) {
    return Differs("model", accepted_->model(), accepted.model());
  }
  if (accepted.seed() != accepted_->seed()) {
    return Differs("seed", accepted_->seed(), accepted.seed());
  }
  if (accepted.prompt_tokens() != accepted_->prompt_tokens()) {
    return Differs("number of prompt tokens", accepted_->prompt_tokens(),
                   accepted.prompt_tokens());
  }
  accepted_->set_session_epoch(accepted.session_epoch());
  return false;
}

absl::StatusOr<bool> StreamProgress::TakePrompt(v1::PromptOutput& prompt) {
  const uint64_t begin = prompt.first_token_index();
  const uint64_t size = static_cast<uint64_t>(prompt.tokens_size());
  const uint64_t told = std::clamp(prompt_tokens_told_, begin, begin + size);
  prompt.mutable_tokens()->DeleteSubrange(0, static_cast<int>(told - begin));
  prompt.set_first_token_index(told);
  prompt_tokens_told_ = std::max(prompt_tokens_told_, begin + size);

  uint64_t offset = prompt_bytes_;
  prompt_bytes_ += prompt.text().size();
  const absl::Status cut =
      CutTold(prompt_bytes_told_, offset, *prompt.mutable_text());
  if (!cut.ok()) return cut;
  return num_streams_ == 1 || prompt.tokens_size() > 0 ||
         !prompt.text().empty();
}

absl::StatusOr<bool> StreamProgress::TakeToken(v1::TokenOutput& token) {
  const auto output = Find(token.output_index());
  if (!output.ok()) return output.status();
  std::vector<uint32_t>& ids = (*output)->ids;
  const uint64_t index = token.token_index();
  const uint32_t id = token.token().id();
  if (index > ids.size()) {
    return absl::InternalError(absl::StrCat("the stream has token ", index,
                                            ", but not token ", ids.size()));
  }
  if (index < ids.size()) {
    if (ids[index] == id) return false;
    return Differs(absl::StrCat("token ", index), ids[index], id);
  }
  if ((*output)->finished) return false;
  uint64_t offset = token.text_offset();
  uint64_t told = (*output)->text_bytes.value_or(offset);
  const absl::Status cut = CutTold(told, offset, *token.mutable_text());
  if (!cut.ok()) return cut;
  ids.push_back(id);
  (*output)->text_bytes = told;
  token.set_text_offset(offset);
  return true;
}

absl::StatusOr<bool> StreamProgress::TakeFinished(v1::GenerateEvent& event) {
  v1::Finished& finished = *event.mutable_finished();
  const auto output = Find(finished.output_index());
  if (!output.ok()) return output.status();
  if (event.has_usage()) Correct(*event.mutable_usage());
  if ((*output)->finished) {
    if (!held_.has_value() || !event.has_usage()) return false;
    *held_->mutable_usage() = event.usage();
    *held_->mutable_timing() = event.timing();
    event = *TakeHeld();
    return true;
  }
  uint64_t offset = finished.text_offset();
  uint64_t told = (*output)->text_bytes.value_or(offset);
  const absl::Status cut = CutTold(told, offset, *finished.mutable_text());
  if (!cut.ok()) return cut;
  finished.set_text_offset(offset);
  (*output)->finished = true;
  if (!complete() || event.has_usage()) return true;
  held_ = event;
  return false;
}

absl::StatusOr<StreamProgress::Output*> StreamProgress::Find(
    uint32_t output_index) {
  if (output_index < outputs_.size()) return &outputs_[output_index];
  return absl::InternalError(absl::StrCat(
      "the stream has output ", output_index, " of ", outputs_.size()));
}

// To the server that goes on all tokens that it was sent are prior ones.
void StreamProgress::Correct(v1::Usage& usage) const {
  uint64_t prior = 0;
  for (const auto& list : request_.prior_output_ids()) prior += list.ids_size();
  usage.set_prior_tokens(prior);
}

}  // namespace flash
