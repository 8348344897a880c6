// One compiled Stan program behind a few C functions. MODEL_FILE is the C++ that stanc wrote.
//
// Log densities keep all constants and the Jacobian; points lie one after the other. A function returns 0,
// or 1 with a message of at most MESSAGE_SIZE bytes.
#include MODEL_FILE

#include <stan/io/json/json_data.hpp>
#include <stan/services/util/create_rng.hpp>

#include <algorithm>
#include <cstring>
#include <iostream>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

namespace {

constexpr std::size_t MESSAGE_SIZE = 1024;
using Model = stan::model::model_base;
using Vector = Eigen::VectorXd;

void say(char* message, const std::string& text) {
  std::size_t n = std::min(text.size(), MESSAGE_SIZE - 1);
  std::memcpy(message, text.data(), n);
  message[n] = '\0';
}

// A Stan program rejects a point by an exception: its density is zero there.
double value_at(const Model& model, Vector& x, char* message) {
  try {
    return model.log_prob_jacobian(x, &std::cout);
  } catch (const std::domain_error& error) {
    say(message, error.what());
    return -std::numeric_limits<double>::infinity();
  }
}

double gradient_at(const Model& model, const Vector& x, Eigen::Map<Vector> gradient, char* message) {
  using stan::math::var;
  stan::math::nested_rev_autodiff scope;
  try {
    Eigen::Matrix<var, Eigen::Dynamic, 1> v = x;
    var value = model.log_prob_jacobian(v, &std::cout);
    double result = value.val();
    stan::math::grad(value.vi_);
    gradient = v.adj();
    return result;
  } catch (const std::domain_error& error) {
    say(message, error.what());
    gradient.setZero();
    return -std::numeric_limits<double>::infinity();
  }
}

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
                       char* message) {
  const Model& model = *static_cast<const Model*>(handle);
  return guarded(message, [&] {
    static thread_local stan::math::ChainableStack thread_stack;
    const long dim = model.num_params_r();
    for (long i = 0; i < n; ++i) {
      Vector x = Eigen::Map<const Vector>(points + i * dim, dim);
      values[i] = gradients == nullptr
                      ? value_at(model, x, message)
                      : gradient_at(model, x, Eigen::Map<Vector>(gradients + i * dim, dim), message);
    }
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
