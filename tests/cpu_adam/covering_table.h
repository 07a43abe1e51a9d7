#pragma once
#include <functional>
#include <set>
#include <tuple>
#include <vector>

namespace tandem {

/// One value's number for every factor.
using TableRow = std::vector<size_t>;
/// A value of one factor beside a value of a later one.
using ValuePair = std::tuple<size_t, size_t, size_t, size_t>;  // factor, value, factor, value

/// Factors by their numbers of values, and which two values can't stand in one row.
struct Factors {
  std::vector<size_t> values;
  std::function<bool(const ValuePair&)> possible;

  [[nodiscard]] std::set<ValuePair> pairs() const {
    std::set<ValuePair> all;
    for (size_t a = 0; a < values.size(); ++a)
      for (size_t b = a + 1; b < values.size(); ++b)
        for (size_t x = 0; x < values[a]; ++x)
          for (size_t y = 0; y < values[b]; ++y)
            if (possible({a, x, b, y})) all.insert({a, x, b, y});
    return all;
  }
};

/// Rows in which every possible pair of values of two factors stands at least once: each row begins with a
/// pair that is missing and is filled, factor by factor, with the value that brings the most missing pairs.
class CoveringTable {
 public:
  explicit CoveringTable(Factors factors) : factors_(std::move(factors)), missing_(factors_.pairs()) {
    while (!missing_.empty()) add_row();
  }
  [[nodiscard]] const std::vector<TableRow>& rows() const { return rows_; }

 private:
  static constexpr size_t kOpen = SIZE_MAX;

  static ValuePair pair_of(size_t a, size_t x, size_t b, size_t y) {
    return a < b ? ValuePair{a, x, b, y} : ValuePair{b, y, a, x};
  }
  void add_row() {
    TableRow row(factors_.values.size(), kOpen);
    const auto [a, x, b, y] = *missing_.begin();
    row[a] = x;
    row[b] = y;
    for (size_t factor = 0; factor < row.size(); ++factor)
      if (row[factor] == kOpen) row[factor] = best_value(row, factor);
    for (size_t c = 0; c < row.size(); ++c)
      for (size_t d = c + 1; d < row.size(); ++d) missing_.erase({c, row[c], d, row[d]});
    rows_.push_back(row);
  }
  /// Of equally good ones, another one in every row.
  [[nodiscard]] size_t best_value(const TableRow& row, size_t factor) const {
    size_t best = kOpen, most = 0;
    for (size_t k = 0; k < factors_.values[factor]; ++k) {
      const size_t value = (k + rows_.size()) % factors_.values[factor];
      size_t gained = 0;
      bool possible = true;
      for (size_t other = 0; other < row.size(); ++other) {
        if (row[other] == kOpen) continue;
        const ValuePair pair = pair_of(factor, value, other, row[other]);
        possible = possible && factors_.possible(pair);
        gained += missing_.count(pair);
      }
      if (possible && (best == kOpen || gained > most)) best = value, most = gained;
    }
    return best;
  }

  Factors factors_;
  std::set<ValuePair> missing_;
  std::vector<TableRow> rows_;
};

}  // namespace tandem
