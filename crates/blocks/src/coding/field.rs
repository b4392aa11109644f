//! The field GF(2⁸) with the polynomial x⁸+x⁴+x³+x²+1, by tables of logarithms of 2.

const POLYNOMIAL: u16 = 0x11d;
const ORDER: usize = 255;

const TABLES: ([u8; 2 * ORDER], [u8; 256]) = tables();
const EXP: [u8; 2 * ORDER] = TABLES.0;
const LOG: [u8; 256] = TABLES.1;

const fn tables() -> ([u8; 2 * ORDER], [u8; 256]) {
    let (mut exp, mut log) = ([0; 2 * ORDER], [0; 256]);
    let (mut power, mut element) = (0, 1u16);
    while power < ORDER {
        exp[power] = element as u8;
        exp[power + ORDER] = element as u8;
        log[element as usize] = power as u8;
        element <<= 1;
        if element > 0xff {
            element ^= POLYNOMIAL;
        }
        power += 1;
    }
    (exp, log)
}

pub(super) fn multiply(a: u8, b: u8) -> u8 {
    match a == 0 || b == 0 {
        true => 0,
        false => EXP[LOG[a as usize] as usize + LOG[b as usize] as usize],
    }
}

/// Of an element that is not zero.
pub(super) fn inverse(a: u8) -> u8 {
    assert!(a != 0, "zero has no inverse");
    EXP[ORDER - LOG[a as usize] as usize]
}

/// The inverse of a square matrix; `None` if it has none. Gauss and Jordan's elimination.
pub(super) fn invert(mut matrix: Vec<Vec<u8>>) -> Option<Vec<Vec<u8>>> {
    let size = matrix.len();
    let unit = |row| (0..size).map(move |column| u8::from(row == column)).collect::<Vec<_>>();
    let mut inverted: Vec<_> = (0..size).map(unit).collect();
    for column in 0..size {
        let pivot = (column..size).find(|row| matrix[*row][column] != 0)?;
        matrix.swap(column, pivot);
        inverted.swap(column, pivot);
        let factor = inverse(matrix[column][column]);
        for rows in [&mut matrix, &mut inverted] {
            rows[column].iter_mut().for_each(|element| *element = multiply(*element, factor));
        }
        for row in (0..size).filter(|row| *row != column) {
            let factor = matrix[row][column];
            for rows in [&mut matrix, &mut inverted] {
                let pivot = rows[column].clone();
                rows[row].iter_mut().zip(pivot).for_each(|(to, from)| *to ^= multiply(from, factor));
            }
        }
    }
    Some(inverted)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Multiplication as it is defined: of polynomials, modulo [`POLYNOMIAL`].
    fn defined(a: u8, b: u8) -> u8 {
        let mut product = 0u16;
        for bit in (0..8).rev() {
            product <<= 1;
            if product > 0xff {
                product ^= POLYNOMIAL;
            }
            if b >> bit & 1 == 1 {
                product ^= u16::from(a);
            }
        }
        product as u8
    }

    #[test]
    fn the_tables_multiply_and_divide_as_the_field_is_defined() {
        for a in 0..=255 {
            for b in 0..=255 {
                assert_eq!(multiply(a, b), defined(a, b), "{a} × {b}");
            }
            assert!(a == 0 || multiply(a, inverse(a)) == 1, "1 / {a}");
        }
    }

    #[test]
    fn a_matrix_without_inverse_is_told() {
        assert_eq!(invert(vec![vec![1, 2], vec![2, 4]]), None);
        let matrix = vec![vec![0, 3], vec![7, 1]];
        let inverted = invert(matrix.clone()).unwrap();
        for (row, column) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let product = (0..2).fold(0, |sum, k| sum ^ multiply(matrix[row][k], inverted[k][column]));
            assert_eq!(product, u8::from(row == column));
        }
    }
}
