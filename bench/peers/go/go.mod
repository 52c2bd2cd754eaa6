module weir.invalid/bench

go 1.23
