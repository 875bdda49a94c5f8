// The limits of a card, by what any backend can do: copy.

#include <chrono>
#include <utility>

#include "kernels/check.h"
#include "tests/bench/machine_limits.h"

namespace flash {
namespace {

// Enough of them that their beginning and their end do not count.
constexpr int kCopies = 4;

class CardLimits final : public LimitMeter {
 public:
  CardLimits(Backend& backend, std::unique_ptr<Buffer> from,
             std::unique_ptr<Buffer> to)
      : backend_(backend), from_(std::move(from)), to_(std::move(to)) {}

 private:
  double MeasureBandwidth() override {
    Wait();
    const auto start = std::chrono::steady_clock::now();
    for (int n = 0; n < kCopies; ++n) {
      backend_.Copy(to_->data(), from_->data(), from_->size());
    }
    Wait();
    const std::chrono::duration<double> time =
        std::chrono::steady_clock::now() - start;
    return 2e-9 * kCopies * static_cast<double>(from_->size()) / time.count();
  }

  std::optional<PeakGflops> MeasurePeak() override { return std::nullopt; }

  void Wait() {
    backend_.BeginStep({});
    FLASH_CHECK(backend_.EndStep({}).ok());
  }

  Backend& backend_;
  const std::unique_ptr<Buffer> from_;
  const std::unique_ptr<Buffer> to_;
};

}  // namespace

std::unique_ptr<LimitMeter> MakeCardLimits(Backend& backend, size_t bytes) {
  auto from = backend.Allocate(bytes);
  auto to = backend.Allocate(bytes);
  FLASH_CHECK(from.ok() && to.ok());
  return std::make_unique<CardLimits>(backend, *std::move(from),
                                      *std::move(to));
}

}  // namespace flash
