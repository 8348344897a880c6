// One compiled Stan program behind a few C functions. MODEL_FILE is the C++ that stanc wrote.
//
// Log densities keep all constants and the Jacobian; points lie one after the other. A function returns 0,
// or 1 with a message of at most MESSAGE_SIZE bytes.
//
// Points are evaluated by TBB's threads, which Stan itself uses. Each point is a computation of its own, so neither
// the number of threads nor who takes which point changes a bit.
#include MODEL_FILE

#include <stan/io/json/json_data.hpp>
#include <stan/services/util/create_rng.hpp>

#include <tbb/blocked_range.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <iostream>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

namespace {

constexpr std::size_t MESSAGE_SIZE = 1024;
// Threads are worth it for so many microseconds of work, in pieces of so many.
constexpr double WORTH_THREADS = 50;
constexpr double PIECE = 20;
using Model = stan::model::model_base;
using Vector = Eigen::VectorXd;

void say(char* message, const std::string& text) {
  std::size_t n = std::min(text.size(), MESSAGE_SIZE - 1);
  std::memcpy(message, text.data(), n);
  message[n] = '\0';
}

// What became of one point: a Stan program rejects it by an exception (its density is zero there), or fails.
struct Fate {
  bool failed = false;
  std::string reason;
};

double value_at(const Model& model, Vector& x) { return model.log_prob_jacobian(x, &std::cout); }

double gradient_at(const Model& model, const Vector& x, Eigen::Map<Vector> gradient) {
  using stan::math::var;
  stan::math::nested_rev_autodiff scope;
  Eigen::Matrix<var, Eigen::Dynamic, 1> v = x;
  var value = model.log_prob_jacobian(v, &std::cout);
  double result = value.val();
  stan::math::grad(value.vi_);
  gradient = v.adj();
  return result;
}

// Points one after the other; gradients may be null.
class Batch {
 public:
  Batch(const Model& model, const double* points, long n, double* values, double* gradients)
      : model_(model), points_(points), values_(values), gradients_(gradients), fates_(n) {}

  void evaluate(int threads) {
    const long n = fates_.size();
    if (n == 0) return;
    using clock = std::chrono::steady_clock;
    const auto start = clock::now();
    some(0, 1);
    const double each = std::chrono::duration<double, std::micro>(clock::now() - start).count();
    if (threads < 2 || each * (n - 1) < WORTH_THREADS) {
      some(1, n);
      return;
    }
    const long grain = std::max(1L, static_cast<long>(std::ceil(PIECE / std::max(each, 0.1))));
    arena(threads).execute([&] {
      tbb::parallel_for(tbb::blocked_range<long>(1, n, grain),
                        [&](const tbb::blocked_range<long>& part) { some(part.begin(), part.end()); });
    });
  }

  // The first failure, or else the last rejection, as if the points had been evaluated in order.
  void report(char* message) const {
    for (const Fate& fate : fates_)
      if (fate.failed) throw std::runtime_error(fate.reason);
    for (auto fate = fates_.rbegin(); fate != fates_.rend(); ++fate)
      if (!fate->reason.empty()) return say(message, fate->reason);
  }

 private:
  // Kept for good: its threads may still be there when the process ends.
  static tbb::task_arena& arena(int threads) {
    static tbb::task_arena* shared = new tbb::task_arena(threads);
    return *shared;
  }

  void some(long begin, long end) {
    stan::math::ChainableStack stack;  // this thread's, unless it has one
    for (long i = begin; i < end; ++i)
      // A program that runs in parallel itself must not take up another point while it waits.
      tbb::this_task_arena::isolate([&] { one(i); });
  }

  void one(long i) {
    const long dim = model_.num_params_r();
    Vector x = Eigen::Map<const Vector>(points_ + i * dim, dim);
    try {
      values_[i] = gradients_ == nullptr
                       ? value_at(model_, x)
                       : gradient_at(model_, x, Eigen::Map<Vector>(gradients_ + i * dim, dim));
      return;
    } catch (const std::domain_error& error) {
      fates_[i].reason = error.what();
    } catch (const std::exception& error) {
      fates_[i] = {true, error.what()};
    } catch (...) {
      fates_[i] = {true, "unknown C++ exception"};
    }
    values_[i] = -std::numeric_limits<double>::infinity();
    if (gradients_ != nullptr) std::fill_n(gradients_ + i * dim, dim, 0.0);
  }

  const Model& model_;
  const double* points_;
  double* values_;
  double* gradients_;
  std::vector<Fate> fates_;
};

template <typename F>
int guarded(char* message, F f) {
  try {
    f();
    return 0;
  } catch (const std::exception& error) {
    say(message, error.what());
  } catch (...) {
    say(message, "unknown C++ exception");
  }
  return 1;
}

}  // namespace

extern "C" {

void* natmix_stan_new(const char* json, unsigned int seed, char* message) {
  Model* model = nullptr;
  guarded(message, [&] {
    std::istringstream text(json);
    stan::json::json_data data(text);
    model = &new_model(data, seed, &std::cout);
  });
  return model;
}

void natmix_stan_delete(void* model) { delete static_cast<Model*>(model); }

int natmix_stan_dim(const void* model) { return static_cast<const Model*>(model)->num_params_r(); }

// Names separated by commas; how many bytes they take, written only if there is room.
long natmix_stan_names(const void* handle, int unconstrained, char* out, long room) {
  const Model& model = *static_cast<const Model*>(handle);
  std::vector<std::string> names;
  if (unconstrained)
    model.unconstrained_param_names(names, false, false);
  else
    model.constrained_param_names(names, true, true);
  std::string joined;
  for (const std::string& name : names) joined += (joined.empty() ? "" : ",") + name;
  if (static_cast<long>(joined.size()) <= room) std::memcpy(out, joined.data(), joined.size());
  return joined.size();
}

int natmix_stan_values(const void* handle, const double* points, long n, double* values, double* gradients,
                       int threads, char* message) {
  return guarded(message, [&] {
    Batch batch(*static_cast<const Model*>(handle), points, n, values, gradients);
    batch.evaluate(threads);
    batch.report(message);
  });
}

// Parameters, transformed parameters and generated quantities of n points, `width` numbers each.
int natmix_stan_constrain(const void* handle, const double* points, long n, unsigned int seed, double* out,
                          long width, char* message) {
  const Model& model = *static_cast<const Model*>(handle);
  return guarded(message, [&] {
    auto rng = stan::services::util::create_rng(seed, 1);
    const long dim = model.num_params_r();
    for (long i = 0; i < n; ++i) {
      Vector x = Eigen::Map<const Vector>(points + i * dim, dim);
      Vector all;
      model.write_array(rng, x, all, true, true, &std::cout);
      if (all.size() != width) throw std::runtime_error("the number of outputs changed");
      Eigen::Map<Vector>(out + i * width, width) = all;
    }
  });
}
}
